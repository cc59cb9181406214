/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A small random generator (splitmix64), so that a seed means the same run on every machine. */
#include <stdint.h>

typedef struct random_source {
  uint64_t state;
} random_source;

/** Sources of different streams of one seed are independent of each other. */
random_source random_make(uint64_t seed, uint64_t stream);
/** Uniform in [0, bound), bound > 0. */
int random_below(random_source *r, int bound);
/** Standard normal. */
float random_normal(random_source *r);
/** A random order of 0 ... count - 1. */
void random_permutation(random_source *r, int *out, int count);
