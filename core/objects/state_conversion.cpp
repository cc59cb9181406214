// SPDX-License-Identifier: Apache-2.0
#include "core/objects/state_conversion.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/rules/dtypes.h"
#include "core/rules/split.h"
#include "core/rules/state_codes.h"

namespace gsc {
namespace {

/// Elements at `data` are aligned to nothing: they lie in a caller's buffer.
template <typename T>
T read_at(const void *data, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char *>(data) + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}
template <typename T>
void write_at(void *data, int64_t i, T value) {
  std::memcpy(static_cast<char *>(data) + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
}

uint8_t *scales_of(void *data, int32_t dtype, int64_t count) {
  return static_cast<uint8_t *>(data) + count * dtype_bytes(dtype);
}
const uint8_t *scales_of(const void *data, int32_t dtype, int64_t count) {
  return static_cast<const uint8_t *>(data) + count * dtype_bytes(dtype);
}

/// A group of `n` elements from element `first` on.
void decode_group(int32_t dtype, const void *data, int64_t count, int64_t first, int n, float *out) {
  if (dtype == GSC_FP32) {
    for (int i = 0; i < n; ++i) out[i] = read_at<float>(data, first + i);
    return;
  }
  with_state_code(dtype, [&](auto code) {
    using C = decltype(code);
    const uint32_t scale = C::kGrouped ? scales_of(data, dtype, count)[first / kStateGroup] : 0;
    for (int i = 0; i < n; ++i) out[i] = C::decode(read_at<typename C::Stored>(data, first + i), scale);
  });
}

void encode_group(int32_t dtype, void *data, int64_t count, int64_t first, int n, const float *x) {
  if (dtype == GSC_FP32) {
    for (int i = 0; i < n; ++i) write_at(data, first + i, x[i]);
    return;
  }
  with_state_code(dtype, [&](auto code) {
    using C = decltype(code);
    uint32_t scale = 0;
    if constexpr (C::kGrouped) {
      int32_t largest = 0;
      for (int i = 0; i < n; ++i) largest = std::max(largest, finite_magnitude(x[i]));
      scale = C::scale_for(static_cast<uint32_t>(largest));
      scales_of(data, dtype, count)[first / kStateGroup] = static_cast<uint8_t>(scale);
    }
    for (int i = 0; i < n; ++i)
      write_at(data, first + i, static_cast<typename C::Stored>(C::encode(x[i], scale, kToNearest)));
  });
}

/// Remainders differ in how many bits of the same fraction they keep.
void convert_remainders(int32_t from_dtype, const void *from, int32_t to_dtype, void *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int fraction = from_dtype == GSC_INT16 ? read_at<int16_t>(from, i) : read_at<int8_t>(from, i) * 256;
    if (to_dtype == GSC_INT16) {
      write_at(to, i, static_cast<int16_t>(fraction));
    } else {
      write_at(to, i, static_cast<int8_t>(std::min((fraction + 128) >> 8, 127)));
    }
  }
}

/// The remainder of a master, of which the weight is the upper part. In a tie the weight may have been rounded down.
template <typename D, typename R>
R remainder_of(float master, uint16_t weight) {
  using S = Split<D, R>;
  const auto parts = S::divide(master);
  const auto rounded = static_cast<uint16_t>(parts.weight);
  const auto remainder = static_cast<R>(parts.remainder);
  if (rounded == weight) return remainder;
  constexpr int32_t kHalf = 1 << (S::kBits - 1);
  const int32_t whole = (int32_t{rounded} & 0x7fff) * (1 << S::kBits) + int32_t{remainder};
  const int32_t above = whole - (int32_t{weight} & 0x7fff) * (1 << S::kBits);
  const bool is_tie = ((rounded ^ weight) & 0x8000) == 0 && above == kHalf && std::isfinite(master);
  return is_tie ? static_cast<R>(kHalf - 1) : remainder;
}

template <typename D, typename R>
void convert_masters_of(const uint16_t *weights, R *remainders, float *masters, int64_t count, bool is_split) {
  for (int64_t i = 0; i < count; ++i) {
    if (is_split) {
      remainders[i] = remainder_of<D, R>(masters[i], weights[i]);
    } else {
      masters[i] = Split<D, R>::join(weights[i], remainders[i]);
    }
  }
}

}  // namespace

void convert_masters(int32_t weight_dtype, const void *weights, int32_t remainder_dtype, void *remainders,
                     float *masters, int64_t count, bool is_split) {
  const auto convert = [&](auto dtype, auto remainder) {
    convert_masters_of<decltype(dtype)>(static_cast<const uint16_t *>(weights),
                                        static_cast<decltype(remainder) *>(remainders), masters, count, is_split);
  };
  const auto with_dtype = [&](auto remainder) {
    weight_dtype == GSC_FP16 ? convert(Fp16{}, remainder) : convert(Bf16{}, remainder);
  };
  remainder_dtype == GSC_INT16 ? with_dtype(int16_t{}) : with_dtype(int8_t{});
}

int64_t stored_bytes(int32_t dtype, int64_t count) {
  return count * dtype_bytes(dtype) + (is_grouped(dtype) ? state_groups(count) : 0);
}

namespace {

/// f(device, offset in host memory, bytes) for the elements and for their scales.
template <typename F>
void for_stored(const gsc_tensor &t, int64_t first, int64_t count, const F &f) {
  const int64_t size = dtype_bytes(t.dtype);
  if (count > 0) f(static_cast<char *>(t.data) + first * size, int64_t{0}, count * size);
  if (count == 0 || !is_grouped(t.dtype)) return;
  f(static_cast<char *>(const_cast<void *>(t.scale)) + first / kStateGroup, count * size, state_groups(count));
}

}  // namespace

void read_stored(Backend &backend, const gsc_tensor &t, int64_t first, int64_t count, void *host, gsc_stream stream) {
  for_stored(t, first, count, [&](void *device, int64_t offset, int64_t bytes) {
    backend.read_sync(static_cast<char *>(host) + offset, device, bytes, stream);
  });
}

void write_stored(Backend &backend, const gsc_tensor &t, int64_t first, int64_t count, const void *host,
                  gsc_stream stream) {
  for_stored(t, first, count, [&](void *device, int64_t offset, int64_t bytes) {
    backend.write_sync(device, static_cast<const char *>(host) + offset, bytes, stream);
  });
}

void convert_state(int32_t from_dtype, const void *from, int32_t to_dtype, void *to, int64_t count) {
  if (from_dtype == GSC_INT16 || from_dtype == GSC_INT8) {
    convert_remainders(from_dtype, from, to_dtype, to, count);
    return;
  }
  float values[kStateGroup];
  for (int64_t first = 0; first < count; first += kStateGroup) {
    const auto n = static_cast<int>(std::min<int64_t>(kStateGroup, count - first));
    decode_group(from_dtype, from, count, first, n, values);
    encode_group(to_dtype, to, count, first, n, values);
  }
}

}  // namespace gsc
