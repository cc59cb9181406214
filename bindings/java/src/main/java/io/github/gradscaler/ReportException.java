// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Training makes no progress. Only from reading a report, which the exception has. */
public abstract class ReportException extends GradScalerException {
  private static final long serialVersionUID = 1;

  private transient Report report;

  ReportException(Status status, String message, FailedArgument argument) {
    super(status, message, argument);
  }

  ReportException with(Report filled) {
    report = filled;
    return this;
  }

  /** The report that was asked for; null only after deserialisation. */
  public final @Nullable Report report() {
    return report;
  }
}
