// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/**
 * Stateless operations, for loops that keep the scaler's state themselves. Device scalars are single numbers in memory of
 * the context's device, as is everything else. Methods with a stream enqueue on it; those without use the default stream.
 */
public final class Ops {
  private Ops() {}

  // gen-api: calls gsc_ops
  /** As {@link #unscaleCheck(Context, Tensor[], DeviceScalar, DeviceScalar, long)} on the default stream. */
  public static void unscaleCheck(Context context, Tensor[] tensors, DeviceScalar foundInf, DeviceScalar invScale) {
    unscaleCheck(context, tensors, foundInf, invScale, 0);
  }

  /**
   * t[i] *= invScale in place for each tensor t[i], as PyTorch's _amp_foreach_non_finite_check_and_unscale_. Sets
   * foundInf to 1 if any element is inf or NaN before or after; otherwise leaves it as it is. Both are device
   * scalars. fp64 gradients overflow at fp64's limit, since no optimizer converts them to fp32 here.
   */
  public static void unscaleCheck(Context context, Tensor[] tensors, DeviceScalar foundInf, DeviceScalar invScale, long stream) {
    final NativeContext self = Context.handleOf(context);
    try (NativeTensorArray tensorsArray = Tensor.array(tensors, "tensors")) {
      self.unscaleCheck(tensorsArray, DeviceScalar.floats(foundInf, "foundInf"), DeviceScalar.floats(invScale, "invScale"), stream);
    }
    java.lang.ref.Reference.reachabilityFence(foundInf);
    java.lang.ref.Reference.reachabilityFence(invScale);
  }

  /**
   * As {@link #updateScale(Context, DeviceScalar, DeviceScalar, DeviceScalar, double, double, int, long)} on the
   * default stream.
   */
  public static void updateScale(Context context, DeviceScalar scale, DeviceScalar growthTracker, DeviceScalar foundInf, double growthFactor, double backoffFactor, int growthInterval) {
    updateScale(context, scale, growthTracker, foundInf, growthFactor, backoffFactor, growthInterval, 0);
  }

  /**
   * PyTorch's _amp_update_scale_ on device scalars: backs the scale off if foundInf != 0; otherwise counts a clean
   * step and grows the scale at the interval. Factors and interval are validated as in ScalerOptions.
   */
  public static void updateScale(Context context, DeviceScalar scale, DeviceScalar growthTracker, DeviceScalar foundInf, double growthFactor, double backoffFactor, int growthInterval, long stream) {
    final NativeContext self = Context.handleOf(context);
    self.updateScale(DeviceScalar.floats(scale, "scale"), DeviceScalar.ints(growthTracker, "growthTracker"), DeviceScalar.floats(foundInf, "foundInf"), growthFactor, backoffFactor, growthInterval, stream);
    java.lang.ref.Reference.reachabilityFence(scale);
    java.lang.ref.Reference.reachabilityFence(growthTracker);
    java.lang.ref.Reference.reachabilityFence(foundInf);
  }

  /** As {@link #scale(Context, Tensor[], Tensor[], DeviceScalar, long)} on the default stream. */
  public static void scale(Context context, Tensor[] src, Tensor[] dst, DeviceScalar factor) {
    scale(context, src, dst, factor, 0);
  }

  /**
   * dst[i] = src[i] * factor. `factor` is a device scalar. Dtypes may differ, and src and dst may be the same
   * buffers. Rounds as {@link GradScaler#scale} does.
   */
  public static void scale(Context context, Tensor[] src, Tensor[] dst, DeviceScalar factor, long stream) {
    final NativeContext self = Context.handleOf(context);
    try (NativeTensorArray srcArray = Tensor.array(src, "src"); NativeTensorArray dstArray = Tensor.array(dst, "dst")) {
      self.scale(srcArray, dstArray, DeviceScalar.floats(factor, "factor"), stream);
    }
    java.lang.ref.Reference.reachabilityFence(factor);
  }

  /** As {@link #axpby(Context, double, Tensor[], double, Tensor[], long)} on the default stream. */
  public static void axpby(Context context, double a, Tensor[] x, double b, Tensor[] y) {
    axpby(context, a, x, b, y, 0);
  }

  /**
   * y[i] = a * x[i] + b * y[i] in fp32 (fp64 if either is fp64): gradient accumulation. With b = 0 y is only written.
   */
  public static void axpby(Context context, double a, Tensor[] x, double b, Tensor[] y, long stream) {
    final NativeContext self = Context.handleOf(context);
    try (NativeTensorArray xArray = Tensor.array(x, "x"); NativeTensorArray yArray = Tensor.array(y, "y")) {
      self.axpby(a, xArray, b, yArray, stream);
    }
  }

  /** As {@link #cast(Context, Tensor[], Tensor[], long)} on the default stream. */
  public static void cast(Context context, Tensor[] src, Tensor[] dst) {
    cast(context, src, dst, 0);
  }

  /** dst[i] = src[i], converted to dst's dtype, rounded to nearest even. A plain copy for equal dtypes. */
  public static void cast(Context context, Tensor[] src, Tensor[] dst, long stream) {
    final NativeContext self = Context.handleOf(context);
    try (NativeTensorArray srcArray = Tensor.array(src, "src"); NativeTensorArray dstArray = Tensor.array(dst, "dst")) {
      self.cast(srcArray, dstArray, stream);
    }
  }

  /** As {@link #convertState(Context, Tensor[], Tensor[], Tensor[], long)} on the default stream. */
  public static void convertState(Context context, Tensor[] src, Tensor @Nullable [] weights, Tensor[] dst) {
    convertState(context, src, weights, dst, 0);
  }

  /**
   * Converts optimizer state between its formats, rounded to nearest, as {@link Optimizer#load} does: dst[i] =
   * src[i]. Both are fp32 or codes of one kind of slot, or both are remainders; equal dtypes keep their bits. If one
   * is fp32 and the other a remainder, the fp32 tensor holds masters, and weights[i] their fp16 or bf16 weights,
   * which are only read; a master that does not round to its weight has the remainder of the weight it rounds to.
   * Else `weights` may be null. Takes FlashOptim's {@link DType#INT8_SOFTSIGN} and {@link DType#UINT8_SQRT} as codes,
   * too. dst[i] must overlap neither src[i] nor weights[i], and no tensor its own scales, which is checked, scales
   * included.
   */
  public static void convertState(Context context, Tensor[] src, Tensor @Nullable [] weights, Tensor[] dst, long stream) {
    final NativeContext self = Context.handleOf(context);
    try (NativeTensorArray srcArray = Tensor.array(src, "src"); NativeTensorArray weightsArray = weights == null ? null : Tensor.array(weights, "weights"); NativeTensorArray dstArray = Tensor.array(dst, "dst")) {
      self.convertState(srcArray, weightsArray, dstArray, stream);
    }
  }
  // gen-api: end

  // gen-api: overload
  /** As {@link #cast(Context, Tensor, Tensor, long)} on the default stream. */
  public static void cast(Context context, Tensor src, Tensor dst) {
    cast(context, src, dst, 0);
  }
  // gen-api: end

  /** As {@link #cast(Context, Tensor[], Tensor[], long)} of one tensor. */
  public static void cast(Context context, Tensor src, Tensor dst, long stream) {
    cast(context, new Tensor[] {src}, new Tensor[] {dst}, stream);
  }

  // gen-api: overload
  /** As {@link #norm(Context, Tensor[], Norm, DeviceScalar, DeviceScalar, long)} on the default stream. */
  public static void norm(Context context, Tensor[] tensors, Norm norm, DeviceScalar total, @Nullable DeviceScalar each) {
    norm(context, tensors, norm, total, each, 0);
  }
  // gen-api: end

  /**
   * Writes the norm over all tensors to a double, and that of each to doubles if `each` is not null. NaN and inf
   * propagate.
   */
  public static void norm(Context context, Tensor[] tensors, Norm norm, DeviceScalar total, @Nullable DeviceScalar each,
      long stream) {
    final NativeContext device = Context.handleOf(context);
    Check.notNull(norm, "norm");
    try (NativeTensorArray array = Tensor.array(tensors, "tensors")) {
      device.norm(array, norm.code(), DeviceScalar.doubles(total, 1, "total"),
          DeviceScalar.doubles(each, tensors.length, "each"), stream);
    }
    java.lang.ref.Reference.reachabilityFence(total);
    java.lang.ref.Reference.reachabilityFence(each);
  }
}
