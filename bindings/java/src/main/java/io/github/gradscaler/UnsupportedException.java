// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** A combination that this version does not do. */
public final class UnsupportedException extends UnsupportedOperationException implements GradScalerFailure {
  private static final long serialVersionUID = 1;

  /** Null if the failure is not about one. */
  private final FailedArgument argument;

  UnsupportedException(String message) {
    this(message, null);
  }

  UnsupportedException(String message, FailedArgument argument) {
    super(message);
    this.argument = argument;
  }

  @Override
  public @Nullable FailedArgument argument() {
    return argument;
  }

  @Override
  public Status status() {
    return Status.UNSUPPORTED;
  }
}
