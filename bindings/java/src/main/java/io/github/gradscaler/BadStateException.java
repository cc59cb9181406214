// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** The call is not allowed now, such as unscale twice between two updates, or the object is closed. */
public final class BadStateException extends IllegalStateException implements GradScalerFailure {
  private static final long serialVersionUID = 1;

  /** Null if the failure is not about one. */
  private final FailedArgument argument;

  BadStateException(String message) {
    this(message, null);
  }

  BadStateException(String message, FailedArgument argument) {
    super(message);
    this.argument = argument;
  }

  @Override
  public @Nullable FailedArgument argument() {
    return argument;
  }

  @Override
  public Status status() {
    return Status.BAD_STATE;
  }
}
