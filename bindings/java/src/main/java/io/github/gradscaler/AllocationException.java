// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Host or device memory could not be had. */
public final class AllocationException extends GradScalerException {
  private static final long serialVersionUID = 1;

  AllocationException(String message) {
    super(Status.OUT_OF_MEMORY, message);
  }
}
