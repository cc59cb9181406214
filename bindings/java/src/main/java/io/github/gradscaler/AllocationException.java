// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Allocation of host or device memory failed. */
public final class AllocationException extends GradScalerException {
  private static final long serialVersionUID = 1;

  AllocationException(String message, FailedArgument argument) {
    super(Status.OUT_OF_MEMORY, message, argument);
  }
}
