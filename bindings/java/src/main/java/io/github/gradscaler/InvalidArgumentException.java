// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** An argument is null, out of range, inconsistent or of an unknown kind; the message names it. */
public final class InvalidArgumentException extends IllegalArgumentException implements GradScalerFailure {
  private static final long serialVersionUID = 1;

  /** Null if the failure is not about one. */
  private final FailedArgument argument;

  InvalidArgumentException(String message) {
    this(message, null);
  }

  InvalidArgumentException(String message, FailedArgument argument) {
    super(message);
    this.argument = argument;
  }

  @Override
  public @Nullable FailedArgument argument() {
    return argument;
  }

  @Override
  public Status status() {
    return Status.INVALID_ARGUMENT;
  }
}
