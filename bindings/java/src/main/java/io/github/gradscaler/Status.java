// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Why a call failed. */
public enum Status {
  /** An argument is null, out of range, inconsistent or of an unknown kind. */
  INVALID_ARGUMENT(NativeCalls.ERROR_INVALID_ARGUMENT),
  /** The call is not allowed now, such as unscale twice between two updates, or the object is closed. */
  BAD_STATE(NativeCalls.ERROR_BAD_STATE),
  /** Host or device memory could not be had. */
  OUT_OF_MEMORY(NativeCalls.ERROR_OUT_OF_MEMORY),
  /** The device or backend is not there: no driver, no such device, built without it. */
  UNAVAILABLE(NativeCalls.ERROR_UNAVAILABLE),
  /** A combination that this version does not do. */
  UNSUPPORTED(NativeCalls.ERROR_UNSUPPORTED),
  /** The device runtime reported an error. */
  DEVICE(NativeCalls.ERROR_DEVICE),
  /** The scale could not be lowered any further, under {@link FloorAction#ERROR}. */
  SCALE_FLOOR(NativeCalls.ERROR_SCALE_FLOOR),
  /** A callback returned an error. */
  CALLBACK(NativeCalls.ERROR_CALLBACK),
  /** A defect of the library. */
  INTERNAL(NativeCalls.ERROR_INTERNAL);

  private final int code;

  Status(int code) {
    this.code = code;
  }

  static Status of(int code) {
    for (Status status : values()) {
      if (status.code == code) {
        return status;
      }
    }
    return INTERNAL;
  }
}
