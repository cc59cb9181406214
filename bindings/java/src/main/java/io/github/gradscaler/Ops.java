// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/**
 * Stateless operations, for loops that keep the scaler's state themselves. Device scalars are single numbers in memory of
 * the context's device, as is everything else. Methods with a stream enqueue on it; those without use the default stream.
 */
public final class Ops {
  private Ops() {}

  // gen-api: calls gsc_ops

  // gen-api: overload
  /** As {@link #cast(Context, Tensor[], Tensor[], long)} of one tensor. */
  public static void cast(Context context, Tensor src, Tensor dst, long stream) {
    cast(context, new Tensor[] {src}, new Tensor[] {dst}, stream);
  }

  // gen-api: overload
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
