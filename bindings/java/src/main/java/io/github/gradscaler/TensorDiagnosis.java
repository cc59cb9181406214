// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** What is in one tensor. From {@link Diagnosis}. */
public final class TensorDiagnosis {
  // gen-api: values gsc_tensor_diagnosis
  private final long count;
  private final long infCount;
  private final long nanCount;
  private final long zeroCount;
  private final long subnormalCount;
  private final long firstNonfinite;
  private final double amax;
  private final double amin;
  private final double l2Norm;

  TensorDiagnosis(NativeTensorDiagnosis from) {
    count = from.getCount();
    infCount = from.getInfCount();
    nanCount = from.getNanCount();
    zeroCount = from.getZeroCount();
    subnormalCount = from.getSubnormalCount();
    firstNonfinite = from.getFirstNonfinite();
    amax = from.getAmax();
    amin = from.getAmin();
    l2Norm = from.getL2Norm();
  }

  /**
   * Number of elements.
   *
   * @return the value
   */
  public long count() {
    return count;
  }

  /**
   * Number of +inf and -inf.
   *
   * @return the value
   */
  public long infCount() {
    return infCount;
  }

  /**
   * Number of NaN.
   *
   * @return the value
   */
  public long nanCount() {
    return nanCount;
  }

  /**
   * Number of +0 and -0.
   *
   * @return the value
   */
  public long zeroCount() {
    return zeroCount;
  }

  /**
   * Number of non-zero values below the smallest normal number of the tensor's dtype.
   *
   * @return the value
   */
  public long subnormalCount() {
    return subnormalCount;
  }

  /**
   * Index of the first inf or NaN; -1 if there is none.
   *
   * @return the value
   */
  public long firstNonfinite() {
    return firstNonfinite;
  }

  /**
   * Largest magnitude of the finite values; 0 if there are none.
   *
   * @return the value
   */
  public double amax() {
    return amax;
  }

  /**
   * Smallest non-zero magnitude of the finite values; 0 if there are none.
   *
   * @return the value
   */
  public double amin() {
    return amin;
  }

  /**
   * Square root of the sum of squares of the finite values, summed in fp64.
   *
   * @return the value
   */
  public double l2Norm() {
    return l2Norm;
  }
  // gen-api: end
}
