// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** An argument is null, out of range, inconsistent or of an unknown kind; the message names it. */
public final class InvalidArgumentException extends IllegalArgumentException implements GradScalerFailure {
  private static final long serialVersionUID = 1;

  InvalidArgumentException(String message) {
    super(message);
  }

  @Override
  public Status status() {
    return Status.INVALID_ARGUMENT;
  }
}
