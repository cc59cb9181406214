/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXAMPLE_PRODUCT_H
#define EXAMPLE_PRODUCT_H
/*
 * Products of small row-major matrices. Sums run in the order of k for every element, so that results do not depend on
 * the instruction set the compiler chose.
 */
#include "real.h"

/** out (n x m) = a (n x k) * b (k x m). */
void product(const real *a, const real *b, real *out, int n, int k, int m);
/** out (cols x rows) = a (rows x cols) transposed. */
void transpose(const real *a, real *out, int rows, int cols);

#endif
