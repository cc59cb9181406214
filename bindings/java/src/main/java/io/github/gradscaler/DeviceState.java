// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Addresses of a scaler's device scalars, valid as long as the scaler. Read them in your own kernels. */
public final class DeviceState {
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
   * Address of the scale, fp32.
   *
   * @return the value
   */
  public long scale() {
    return scale;
  }

  /**
   * Address of 1 / scale, fp32.
   *
   * @return the value
   */
  public long invScale() {
    return invScale;
  }

  /**
   * Address of the growth tracker, a 32-bit integer.
   *
   * @return the value
   */
  public long growthTracker() {
    return growthTracker;
  }

  /**
   * Address of the hysteresis tracker, a 32-bit integer.
   *
   * @return the value
   */
  public long hysteresisTracker() {
    return hysteresisTracker;
  }

  /**
   * Address of the number of non-finite gradients of the list, fp32; 0 if no list was given.
   *
   * @return the value
   */
  public long foundInf() {
    return foundInf;
  }

  /**
   * Address of the norm of the gradients of the list, fp64; 0 if no list was given.
   *
   * @return the value
   */
  public long gradNorm() {
    return gradNorm;
  }
}
