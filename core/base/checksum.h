// SPDX-License-Identifier: Apache-2.0
// XXH64, the published 64-bit hash (xxHash specification 0.1.1, seed 0). It runs at the speed of memory and finds any
// flipped bit of a checkpoint. Every language has it, so tools can check a file without this library.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace gsc {
namespace xxh64 {

inline constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87;
inline constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
inline constexpr uint64_t kPrime3 = 0x165667B19E3779F9;
inline constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
inline constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5;

constexpr uint64_t rotate(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

/// Little-endian, as in the specification.
template <typename T>
uint64_t read(const unsigned char *bytes) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

constexpr uint64_t round(uint64_t lane, uint64_t input) { return rotate(lane + input * kPrime2, 31) * kPrime1; }

}  // namespace xxh64

inline uint64_t checksum(const void *data, int64_t size) {
  using namespace xxh64;
  const auto *at = static_cast<const unsigned char *>(data);
  const unsigned char *const end = at + size;
  uint64_t hash = kPrime5;
  if (size >= 32) {
    uint64_t lanes[4] = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
    for (; end - at >= 32; at += 32) {
      for (int i = 0; i < 4; ++i) lanes[i] = round(lanes[i], read<uint64_t>(at + 8 * i));
    }
    hash = rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) + rotate(lanes[3], 18);
    for (const uint64_t lane : lanes) hash = (hash ^ round(0, lane)) * kPrime1 + kPrime4;
  }
  hash += static_cast<uint64_t>(size);
  for (; end - at >= 8; at += 8) hash = rotate(hash ^ round(0, read<uint64_t>(at)), 27) * kPrime1 + kPrime4;
  if (end - at >= 4) {
    hash = rotate(hash ^ read<uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at < end; ++at) hash = rotate(hash ^ *at * kPrime5, 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace gsc
