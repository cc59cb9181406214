// SPDX-License-Identifier: Apache-2.0
// Packs of consecutive elements of any dtype between memory and registers: either as many elements as fit in 16 bytes
// of the arithmetic type T, at an address aligned to the pack, or one. Loading and unpacking are separate, so that a
// kernel can have several loads in flight.
#pragma once

#include <type_traits>

#include "core/cuda/device.cuh"

namespace gsc::cuda {

template <typename T>
inline constexpr int32_t kArithmeticDtype = sizeof(T) == 8 ? GSC_FP64 : GSC_FP32;

/// Elements of a full pack.
template <typename T>
inline constexpr int kPackWidth = 16 / static_cast<int>(sizeof(T));

/// From which of its first `Width` elements on an array can be accessed in packs: bit i for element i.
template <int Width>
GSC_DEVICE unsigned pack_heads(const void *p, int32_t dtype) {
  static_assert(Width == 2 || Width == 4);
  const int64_t size = dtype_bytes(dtype);
  const unsigned shift = size == 1 ? 0 : (size == 2 ? 1 : (size == 4 ? 2 : 3));
  const unsigned bytes = least(unsigned{Width} << shift, 16U);
  const unsigned period = bytes >> shift;
  const unsigned first = ((0U - static_cast<unsigned>(reinterpret_cast<uintptr_t>(p))) & (bytes - 1)) >> shift;
  const unsigned every = period == 4 ? 0x1U : (period == 2 ? 0x5U : 0xfU);
  return every << first & ((1U << Width) - 1);
}
/// The first of `heads`, the positions common to all arrays of a pack; `n`, the number of elements, if there is none.
GSC_DEVICE int first_pack(unsigned heads, int n) {
  if (heads == 0) return n;
  int head = 0;
  while ((heads >> head & 1) == 0) ++head;
  return least(head, n);
}

template <typename T, int Width>
struct Elements {
  static_assert(Width == 1 || Width % kPackWidth<T> == 0);
  static constexpr bool kWide = sizeof(T) == 8;
  /// Bits of a pack, elements packed from the lowest word up.
  using Raw = Words<Width *static_cast<int>(sizeof(T))>;

  /// Packs of this dtype fit in a Raw: all but the wide ones when T is float.
  GSC_DEVICE static bool fits(int32_t dtype) { return kWide || !is_wide(dtype); }

  template <int Size>
  GSC_DEVICE static Raw load_sized(const char *p) {
    Raw r = {};
    const Words<Size *Width> w = load_streaming<Size * Width>(p);
#pragma unroll
    for (int i = 0; i < (Size * Width + 3) / 4; ++i) r.w[i] = w.w[i];
    return r;
  }

  GSC_DEVICE static Raw load(int32_t dtype, const char *p) {
    const int64_t size = dtype_bytes(dtype);
    if (size == 1) return load_sized<1>(p);
    if (size == 2) return load_sized<2>(p);
    if constexpr (kWide) {
      if (size == 8) return load_sized<8>(p);
    }
    return load_sized<4>(p);
  }

  /// As V: float, or double if T is. Only for dtypes whose packs fit in `r`.
  template <typename V, int Bytes>
  GSC_DEVICE static void unpack(int32_t dtype, const Words<Bytes> &r, V (&x)[Width]) {
    with_dtype(dtype, [&](auto d) {
      using D = decltype(d);
      if constexpr (Width * static_cast<int>(sizeof(typename D::Stored)) <= Bytes) {
#pragma unroll
        for (int k = 0; k < Width; ++k) x[k] = static_cast<V>(element_of<D>(r, k));
      } else {
        __builtin_unreachable();
      }
    });
  }
};

/// Stores a pack as any dtype, rounded once to nearest even.
template <typename T, int Width>
GSC_DEVICE void store_elements(int32_t dtype, char *p, const T (&x)[Width]) {
  with_dtype(dtype, [&](auto d) {
    using D = decltype(d);
    constexpr int kSize = sizeof(typename D::Stored);
    // In pieces of at most 16 bytes: a full 32-byte pack would raise register pressure.
    constexpr int kPiece = Width * kSize > 16 ? 16 / kSize : Width;
#pragma unroll
    for (int i = 0; i < Width; i += kPiece) {
      Words<kPiece *kSize> w = {};
#pragma unroll
      for (int k = 0; k < kPiece; ++k) put_element<D>(w, k, x[i + k]);
      store_words<kPiece * kSize>(p + i * kSize, w);
    }
  });
}

/// Calls f.template operator()<Width>(i) for packs that cover [0, n): full packs from `head` on, single elements before
/// and after, distributed over the threads of a team.
template <typename T, typename F>
GSC_DEVICE void for_packs(int n, int head, const Team &team, const F &f) {
  constexpr int kWidth = kPackWidth<T>;
  const int end = n - (n - head) % kWidth;
  for (int i = head + team.thread() * kWidth; i < end; i += team.threads() * kWidth) f.template operator()<kWidth>(i);
  for (int i = team.thread(); i < n - end + head; i += team.threads()) {
    f.template operator()<1>(i < head ? i : end + i - head);
  }
}

/// Packs of one array, all loaded before the first use. Size: bytes of an element; 0 if known at run time only.
template <typename T, int Size, int Packs>
struct Batch {
  static constexpr int kWidth = kPackWidth<T>;
  using E = Elements<T, kWidth>;
  using Raw = std::conditional_t<Size == 0, typename E::Raw, Words<Size * kWidth>>;
  Raw raw[Packs];

  /// The packs are `stride` bytes apart and start below `left`. A pack beyond that is replaced by a reload of the
  /// first.
  GSC_DEVICE void load(int32_t dtype, const char *p, int stride, int left) {
#pragma unroll
    for (int r = 0; r < Packs; ++r) {
      const char *at = p + (r * stride < left ? r * stride : 0);
      if constexpr (Size == 0) {
        raw[r] = E::load(dtype, at);
      } else {
        raw[r] = load_streaming<Size * kWidth>(at);
      }
    }
  }
};

/// Fills n elements with one value, as a team.
GSC_DEVICE void fill_span(char *p, int32_t dtype, int n, double value, const Team &team) {
  const int bytes = static_cast<int>(dtype_bytes(dtype));
  for_packs<double>(n, first_pack(pack_heads<kPackWidth<double>>(p, dtype), n), team, [&]<int Width>(int i) {
    double x[Width];
#pragma unroll
    for (int k = 0; k < Width; ++k) x[k] = value;
    store_elements<double, Width>(dtype, p + i * bytes, x);
  });
}

}  // namespace gsc::cuda
