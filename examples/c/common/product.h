/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXAMPLE_PRODUCT_H
#define EXAMPLE_PRODUCT_H
/*
 * The type that the examples compute in, and products of small row-major matrices. The type is fp32, or fp64 where a test
 * compares gradients with finite differences, for which fp32 is too coarse. Sums run in the order of k for every element,
 * so that results do not depend on the compiler's instruction set.
 */
#include <gradscaler/gradscaler.h>

#ifdef EXAMPLE_FP64
typedef double real;
#define REAL_DTYPE GSC_FP64
#else
typedef float real;
#define REAL_DTYPE GSC_FP32
#endif

/** out (n x m) = a (n x k) * b (k x m). */
void product(const real *a, const real *b, real *out, int n, int k, int m);
/** out (cols x rows) = a (rows x cols) transposed. */
void transpose(const real *a, real *out, int rows, int cols);

#endif
