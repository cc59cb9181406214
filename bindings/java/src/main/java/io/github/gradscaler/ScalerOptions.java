// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** The policy of a {@link GradScaler}. Starts as PyTorch's; the library checks it when a scaler is made of it. */
public final class ScalerOptions {
  private final NativeScalerOptions handle = new NativeScalerOptions();

  /** PyTorch's policy. */
  public ScalerOptions() {}

  /** The policy of another system. */
  public ScalerOptions(Preset preset) {
    handle.preset(Check.notNull(preset, "preset").code());
  }

  NativeScalerOptions handle() {
    return handle;
  }

  // gen-api: accessors gsc_scaler_options
}
