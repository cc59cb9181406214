// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** A combination that this version does not do. */
public final class UnsupportedException extends UnsupportedOperationException implements GradScalerFailure {
  private static final long serialVersionUID = 1;

  UnsupportedException(String message) {
    super(message);
  }

  @Override
  public Status status() {
    return Status.UNSUPPORTED;
  }
}
