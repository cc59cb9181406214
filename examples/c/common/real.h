/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXAMPLE_REAL_H
#define EXAMPLE_REAL_H
/*
 * The type that the examples compute in: fp32, or fp64 where a test compares gradients with finite differences, for
 * which fp32 is too coarse.
 */
#include <gradscaler/gradscaler.h>

#ifdef EXAMPLE_FP64
typedef double real;
#define REAL_DTYPE GSC_FP64
#else
typedef float real;
#define REAL_DTYPE GSC_FP32
#endif

#endif
