// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** The device or backend is not there: no driver, no such device, built without it. */
public final class UnavailableException extends GradScalerException {
  private static final long serialVersionUID = 1;

  UnavailableException(String message, FailedArgument argument) {
    super(Status.UNAVAILABLE, message, argument);
  }
}
