// SPDX-License-Identifier: Apache-2.0
//
// Tensors of several chunks with something to find in any of them: random sizes around multiples of a chunk, a random
// magnitude for each chunk, and zeros, subnormals, inf and NaN at random places, most of them at the edges of chunks.
#ifndef GRADSCALER_TESTS_SUPPORT_PLANTED_H
#define GRADSCALER_TESTS_SUPPORT_PLANTED_H
#include <algorithm>
#include <vector>

#include "tests/support/buffer.h"

namespace gsc_test {

/// Elements of a chunk in lists of less than 2^26.
inline constexpr int64_t kChunk = 16384;

/// Up to four chunks, two elements more or less.
inline int64_t random_count(Random &random) {
  return std::max<int64_t>(0, random.below(5) * kChunk + random.below(5) - 2);
}

/// The first or the last element of a random chunk, or any element.
inline int64_t random_place(Random &random, int64_t count) {
  const int64_t any = random.below(count);
  const int64_t chunk = any / kChunk * kChunk;
  const int64_t places[] = {chunk, std::min(chunk + kChunk, count) - 1, any};
  return places[random.below(3)];
}

/// Magnitudes from 2^-5 to 2^6, whose squares any dtype's sums hold.
inline void fill_chunks(Random &random, Buffer &buffer) {
  double magnitude = 1.0;
  for (int64_t i = 0; i < buffer.count(); ++i) {
    if (i % kChunk == 0) magnitude = std::ldexp(1.0, random.below(12) - 5);
    buffer.set(i, random.uniform(-magnitude, magnitude));
  }
}

/// A buffer as above. `nonfinite`: about half of them have inf or NaN.
inline Buffer planted_buffer(Random &random, int32_t dtype, bool nonfinite) {
  Buffer buffer(dtype, random_count(random), random.below(8));
  fill_chunks(random, buffer);
  if (buffer.count() == 0) return buffer;
  const Format format = format_of(dtype);
  const double quiet[] = {0.0, -0.0, format.min_subnormal(), -format.min_normal() / 2, format.min_normal()};
  // One or two elements stay normal: the norm of subnormal fp64 numbers alone is 0.
  for (int64_t n = buffer.count() > 2 ? random.below(12) : 0; n > 0; --n) {
    buffer.set(random_place(random, buffer.count()), quiet[random.below(5)]);
  }
  const double loud[] = {kInf, -kInf, kNan};
  for (int64_t n = nonfinite ? random.below(8) - 3 : 0; n > 0; --n) {
    buffer.set(random_place(random, buffer.count()), loud[random.below(3)]);
  }
  return buffer;
}

}  // namespace gsc_test
#endif
