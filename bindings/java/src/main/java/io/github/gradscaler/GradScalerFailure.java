// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/**
 * Implemented by every exception of this package. Each is an {@link IllegalArgumentException}, an
 * {@link IllegalStateException}, an {@link UnsupportedOperationException} or a {@link GradScalerException}.
 */
public interface GradScalerFailure {
  /** The kind of failure. */
  Status status();

  /**
   * Which argument the failure is about, for programs; the message has it in words. null if it is not about one, or if
   * it was found before the library was asked.
   */
  @Nullable FailedArgument argument();

  /** The library's sentence, which starts with the method that failed. */
  String getMessage();
}
