// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** The scale could not be lowered any further. Only with {@link FloorAction#ERROR}, and only from reading a report. */
public final class ScaleFloorException extends ReportException {
  private static final long serialVersionUID = 1;

  ScaleFloorException(String message, FailedArgument argument) {
    super(Status.SCALE_FLOOR, message, argument);
  }
}
