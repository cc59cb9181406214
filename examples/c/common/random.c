/* SPDX-License-Identifier: Apache-2.0 */
/* splitmix64, and what is derived from it. Quality is ample for shuffling and for initial weights; for nothing else. */
#include "random.h"

#include <math.h>

static uint64_t next_bits(random_source *r) {
  uint64_t z = (r->state += UINT64_C(0x9E3779B97F4A7C15));
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

/* In (0, 1): the half step keeps the logarithm below finite. */
static double next_unit(random_source *r) { return ((double)(next_bits(r) >> 11) + 0.5) / 9007199254740992.0; }

random_source random_make(uint64_t seed, uint64_t stream) {
  random_source r = {seed * UINT64_C(0x9E3779B97F4A7C15) + stream};
  r.state = next_bits(&r);
  return r;
}

int random_below(random_source *r, int bound) { return (int)(next_bits(r) % (uint64_t)bound); }

float random_normal(random_source *r) {
  const double two_pi = 6.283185307179586;
  const double radius = sqrt(-2.0 * log(next_unit(r)));
  return (float)(radius * cos(two_pi * next_unit(r)));
}

void random_permutation(random_source *r, int *out, int count) {
  for (int i = 0; i < count; i++) {
    const int j = random_below(r, i + 1);
    out[i] = out[j];
    out[j] = i;
  }
}
