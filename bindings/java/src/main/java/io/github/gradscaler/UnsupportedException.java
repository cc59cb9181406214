// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** A combination that this version does not do. */
public final class UnsupportedException extends GradScalerException {
  private static final long serialVersionUID = 1;

  UnsupportedException(String message) {
    super(Status.UNSUPPORTED, message);
  }
}
