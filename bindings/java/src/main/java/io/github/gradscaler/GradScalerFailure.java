// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/**
 * What every exception of this package is, whatever Java class it extends: an {@link IllegalArgumentException}, an
 * {@link IllegalStateException}, an {@link UnsupportedOperationException} or a {@link GradScalerException}.
 */
public interface GradScalerFailure {
  /**
   * What kind of failure it is.
   *
   * @return never null
   */
  Status status();

  /**
   * The library's sentence, which starts with the method that failed.
   *
   * @return never null
   */
  String getMessage();
}
