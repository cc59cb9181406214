// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** What {@link TensorList#diagnose()} found: for each tensor counts, extremes and a histogram of exponents. */
public final class Diagnosis {
  /** Bins of an exponent histogram. */
  public static final int EXPONENT_BINS = NativeCalls.EXPONENT_BINS;
  /** Exponent of bin 0: bin b counts the values x with floor(log2(|x|)) == b + EXPONENT_MIN. */
  public static final int EXPONENT_MIN = NativeCalls.EXPONENT_MIN;

  private final NativeDiagnoses diagnoses;

  Diagnosis(NativeDiagnoses diagnoses) {
    this.diagnoses = diagnoses;
  }

  /** Number of tensors. */
  public long count() {
    return diagnoses.count();
  }

  /** Statistics of one tensor. */
  public TensorDiagnosis get(long index) {
    try (NativeTensorDiagnosis one = diagnoses.get(index)) {
      return new TensorDiagnosis(one);
    }
  }

  /** EXPONENT_BINS counts of the exponents of the finite non-zero values of one tensor. */
  public long[] histogram(long index) {
    final long[] bins = new long[EXPONENT_BINS];
    for (int i = 0; i < bins.length; i++) {
      bins[i] = diagnoses.histogram(index, i);
    }
    return bins;
  }

  /**
   * Recommends a loss scale for all tensors together, whose gradients were taken at currentScale, finite and greater
   * than 0, and are computed in dtype.
   */
  public Recommendation recommend(float currentScale, DType dtype) {
    try (NativeRecommendation one = diagnoses.recommend(currentScale, Check.notNull(dtype, "dtype").code())) {
      return new Recommendation(one);
    }
  }
}
