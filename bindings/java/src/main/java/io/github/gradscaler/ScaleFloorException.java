// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** The scale could not be lowered any further. Only with {@link FloorAction#ERROR}, and only from reading a report. */
public final class ScaleFloorException extends GradScalerException {
  private static final long serialVersionUID = 1;

  private transient Report report;

  ScaleFloorException(String message, FailedArgument argument) {
    super(Status.SCALE_FLOOR, message, argument);
  }

  ScaleFloorException with(Report filled) {
    report = filled;
    return this;
  }

  /** The report that was asked for; null only after deserialisation. */
  public @Nullable Report report() {
    return report;
  }
}
