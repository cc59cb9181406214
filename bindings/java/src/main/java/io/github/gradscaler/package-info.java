// SPDX-License-Identifier: Apache-2.0
/**
 * Dynamic loss scaling and the fused tail of a mixed-precision training step; begin with {@link
 * io.github.gradscaler.GradScaler}. Parameters and results are never null unless they are {@link
 * io.github.gradscaler.Nullable}; elements of arrays and lists never are.
 */
package io.github.gradscaler;
