/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Products of small row-major matrices. Sums run in the order of k for every element, so that results do not depend on
 * the compiler's instruction set.
 */

/** out (n x m) = a (n x k) * b (k x m). */
void product(const float *a, const float *b, float *out, int n, int k, int m);
/** out (cols x rows) = a (rows x cols) transposed. */
void transpose(const float *a, float *out, int rows, int cols);
