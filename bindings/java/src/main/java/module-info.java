// SPDX-License-Identifier: Apache-2.0

/** Dynamic loss scaling and the fused tail of a mixed-precision training step. */
module io.github.gradscaler {
  exports io.github.gradscaler;

  uses io.github.gradscaler.LibraryJar;
}
