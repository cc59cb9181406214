// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Addresses of a scaler's device scalars, valid as long as the scaler. Read them in your own kernels. */
public final class DeviceState {
  // gen-api: values gsc_device_state
  private final long scale;
  private final long invScale;
  private final long growthTracker;
  private final long hysteresisTracker;
  private final long foundInf;
  private final long gradNorm;

  DeviceState(NativeDeviceState from) {
    scale = from.getScale();
    invScale = from.getInvScale();
    growthTracker = from.getGrowthTracker();
    hysteresisTracker = from.getHysteresisTracker();
    foundInf = from.getFoundInf();
    gradNorm = from.getGradNorm();
  }

  /**
   * Address (fp32): the scale.
   *
   * @return the value
   */
  public long scale() {
    return scale;
  }

  /**
   * Address (fp32): 1 / scale, computed in fp64 and rounded.
   *
   * @return the value
   */
  public long invScale() {
    return invScale;
  }

  /**
   * Address (32-bit integer): clean steps since the scale last changed.
   *
   * @return the value
   */
  public long growthTracker() {
    return growthTracker;
  }

  /**
   * Address (32-bit integer): overflows left before the scale backs off.
   *
   * @return the value
   */
  public long hysteresisTracker() {
    return hysteresisTracker;
  }

  /**
   * Address (fp32): number of non-finite gradients of the given list, as a float. 0 if no list was given.
   *
   * @return the value
   */
  public long foundInf() {
    return foundInf;
  }

  /**
   * Address (fp64): l2 norm of the unscaled gradients of the given list. 0 if no list was given.
   *
   * @return the value
   */
  public long gradNorm() {
    return gradNorm;
  }
  // gen-api: end
}
