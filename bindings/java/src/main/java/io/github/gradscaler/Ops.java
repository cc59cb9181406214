// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.lang.ref.Reference;

/**
 * Stateless operations, for loops that keep the scaler's state themselves. Device scalars are single numbers in
 * memory of the device. Methods with a stream enqueue on it; those without use the default stream.
 */
public final class Ops {
  private Ops() {}

  // gen-api: overload
  /**
   * tensors[i] *= invScale in place, as PyTorch's _amp_foreach_non_finite_check_and_unscale_.
   *
   * @param context the device of all memory
   * @param tensors any number
   * @param foundInf a float that becomes 1 if any element is inf or NaN
   * @param invScale a float
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public static void unscaleCheck(Context context, Tensor[] tensors, DeviceScalar foundInf, DeviceScalar invScale, long stream) {
    final NativeContext device = Context.handleOf(context);
    try (NativeTensorArray array = Tensor.array(tensors, "tensors")) {
      device.unscaleCheck(array, DeviceScalar.floats(foundInf, "foundInf"), DeviceScalar.floats(invScale, "invScale"), stream);
    }
    Reference.reachabilityFence(foundInf);
    Reference.reachabilityFence(invScale);
  }

  // gen-api: overload
  /**
   * PyTorch's _amp_update_scale_.
   *
   * @param context the device of all memory
   * @param scale a float
   * @param growthTracker a 32-bit integer
   * @param foundInf a float
   * @param growthFactor greater than 1
   * @param backoffFactor in (0, 1)
   * @param growthInterval at least 1
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public static void updateScale(Context context, DeviceScalar scale, DeviceScalar growthTracker, DeviceScalar foundInf,
      double growthFactor, double backoffFactor, int growthInterval, long stream) {
    Context.handleOf(context).updateScale(DeviceScalar.floats(scale, "scale"), DeviceScalar.ints(growthTracker, "growthTracker"),
        DeviceScalar.floats(foundInf, "foundInf"), growthFactor, backoffFactor, growthInterval, stream);
    Reference.reachabilityFence(scale);
    Reference.reachabilityFence(growthTracker);
    Reference.reachabilityFence(foundInf);
  }

  // gen-api: overload
  /**
   * dst[i] = src[i] * factor; dtypes may differ, and src and dst may be the same memory.
   *
   * @param context the device of all memory
   * @param src what to read
   * @param dst where to write, of equal counts
   * @param factor a float
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public static void scale(Context context, Tensor[] src, Tensor[] dst, DeviceScalar factor, long stream) {
    final NativeContext device = Context.handleOf(context);
    try (NativeTensorArray from = Tensor.array(src, "src");
        NativeTensorArray to = Tensor.array(dst, "dst")) {
      device.scale(from, to, DeviceScalar.floats(factor, "factor"), stream);
    }
    Reference.reachabilityFence(factor);
  }

  // gen-api: overload
  /**
   * y[i] = a * x[i] + b * y[i] in fp32, or fp64 if either is: gradient accumulation.
   *
   * @param context the device of all memory
   * @param a factor of x
   * @param x what to add
   * @param b factor of y; with 0 y is only written
   * @param y what to add to, of equal counts
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public static void axpby(Context context, double a, Tensor[] x, double b, Tensor[] y, long stream) {
    final NativeContext device = Context.handleOf(context);
    try (NativeTensorArray from = Tensor.array(x, "x");
        NativeTensorArray to = Tensor.array(y, "y")) {
      device.axpby(a, from, b, to, stream);
    }
  }

  // gen-api: overload
  /**
   * dst[i] = src[i], converted to dst's dtype, rounded to nearest even.
   *
   * @param context the device of all memory
   * @param src what to read
   * @param dst where to write, of equal counts
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public static void cast(Context context, Tensor[] src, Tensor[] dst, long stream) {
    final NativeContext device = Context.handleOf(context);
    try (NativeTensorArray from = Tensor.array(src, "src");
        NativeTensorArray to = Tensor.array(dst, "dst")) {
      device.cast(from, to, stream);
    }
  }

  // gen-api: overload
  /**
   * dst = src, converted to dst's dtype, rounded to nearest even.
   *
   * @param context the device of all memory
   * @param src what to read
   * @param dst where to write, of equal count
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public static void cast(Context context, Tensor src, Tensor dst, long stream) {
    cast(context, new Tensor[] {src}, new Tensor[] {dst}, stream);
  }

  // gen-api: overload
  /**
   * Converts optimizer state between its formats, rounded to nearest: dst[i] = src[i]. Both are fp32 or codes of one kind
   * of slot, with their scales ({@link Tensor#withScales}), or both are remainders.
   *
   * @param context the device of all memory
   * @param src what to read
   * @param weights the 16-bit weights if one side has fp32 masters and the other remainders; else may be null
   * @param dst where to write, of equal counts; must not overlap src
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public static void convertState(Context context, Tensor[] src, @Nullable Tensor[] weights, Tensor[] dst, long stream) {
    final NativeContext device = Context.handleOf(context);
    try (NativeTensorArray from = Tensor.array(src, "src");
        NativeTensorArray halves = weights == null ? null : Tensor.array(weights, "weights");
        NativeTensorArray to = Tensor.array(dst, "dst")) {
      device.convertState(from, halves, to, stream);
    }
  }

  // gen-api: overload
  /**
   * Norms. NaN and inf propagate.
   *
   * @param context the device of all memory
   * @param tensors any number
   * @param norm which norm
   * @param total a double that receives the norm over all tensors
   * @param each doubles that receive the norm of each tensor; may be null
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public static void norm(Context context, Tensor[] tensors, Norm norm, DeviceScalar total, @Nullable DeviceScalar each, long stream) {
    final NativeContext device = Context.handleOf(context);
    Check.notNull(norm, "norm");
    try (NativeTensorArray array = Tensor.array(tensors, "tensors")) {
      device.norm(array, norm.code(), DeviceScalar.doubles(total, 1, "total"), DeviceScalar.doubles(each, tensors.length, "each"),
          stream);
    }
    Reference.reachabilityFence(total);
    Reference.reachabilityFence(each);
  }
}
