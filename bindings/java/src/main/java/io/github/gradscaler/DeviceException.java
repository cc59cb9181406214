// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** The device runtime reported an error; the message carries its text. */
public final class DeviceException extends GradScalerException {
  private static final long serialVersionUID = 1;

  DeviceException(String message, FailedArgument argument) {
    super(Status.DEVICE, message, argument);
  }
}
