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
   * Which argument the failure is about, for programs; the message has it in words.
   *
   * @return null if it is not about one, or if it was found before the library was asked
   */
  @Nullable FailedArgument argument();

  /**
   * The library's sentence, which starts with the method that failed.
   *
   * @return never null
   */
  String getMessage();
}
