// SPDX-License-Identifier: Apache-2.0
// The arrays of a span whose state is in codes (core/rules/state_codes.h), or whose parameters are parts of split
// masters or rounded stochastically (split.h, random.h): decoded to fp32 into buffers in L1, and back. Included by
// apply_kernel.h only.
#pragma once

#include <bit>

#include "core/cpu/apply_cursor.h"
#include "core/rules/random.h"
#include "core/rules/split.h"
#include "core/rules/state_codes.h"

namespace gsc::cpu {
namespace {

/// Elements of a block: 16 calls of philox, which fill the lanes of the widest vectors.
constexpr int kCodedBlock = 128;
constexpr int kPhiloxCalls = kCodedBlock / kPhiloxElements;

/// 16 random bits for each of the block's elements; the first has index `first`, a multiple of kPhiloxElements. The calls
/// of philox fill the lanes of vectors.
[[gnu::noinline]] void draw(uint64_t seed, int64_t first, int64_t step, Draw purpose, uint16_t *__restrict out) {
  constexpr int kLanes = kVectorBytes / 4;
  const auto block = static_cast<uint64_t>(first / kPhiloxElements);
  for (int j = 0; j < kPhiloxCalls; j += kLanes) {
    Uint32Vector x[4];
    for (int lane = 0; lane < kLanes; ++lane) {
      // In the order that transpose_fours leaves.
      const uint64_t index = block + static_cast<uint64_t>(j + lane % 4 * (kLanes / 4) + lane / 4);
      x[0][lane] = static_cast<uint32_t>(index);
      x[1][lane] = static_cast<uint32_t>(index >> 32);
    }
    x[2] = broadcast<Uint32Vector>(static_cast<uint32_t>(step));
    x[3] = broadcast<Uint32Vector>(static_cast<uint32_t>(purpose));
    auto key0 = static_cast<uint32_t>(seed);
    auto key1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      Uint32Vector upper0, lower0, upper2, lower2;
      multiply_wide(x[0], kPhiloxMultiplier0, upper0, lower0);
      multiply_wide(x[2], kPhiloxMultiplier1, upper2, lower2);
      x[0] = upper2 ^ x[1] ^ key0;
      x[1] = lower2;
      x[2] = upper0 ^ x[3] ^ key1;
      x[3] = lower0;
      key0 += kPhiloxKeyStep0;
      key1 += kPhiloxKeyStep1;
    }
    transpose_fours(x);
    for (int w = 0; w < 4; ++w) {
      static_assert(std::endian::native == std::endian::little);  // lower halves first
      store_vector(out + kPhiloxElements * j + 2 * kLanes * w, x[w]);
    }
  }
}

/// f(first, n) for each group of a block of n elements.
template <typename F>
GSC_HD void for_groups(int n, const F &f) {
  int i = 0;
  for (; i + kStateGroup <= n; i += kStateGroup) f(i, std::integral_constant<int, kStateGroup>{});
  if (i < n) f(i, n - i);
}

template <typename C>
[[gnu::noinline]] void decode_block(const typename C::Stored *__restrict codes, const uint8_t *__restrict scales,
                                    float *__restrict out, int n) {
  for_groups(n, [&](int first, auto size) {
    const uint32_t scale = C::kGrouped ? scales[first / kStateGroup] : 0;
    for (int i = first; i < first + size; ++i) out[i] = C::decode(codes[i], scale);
  });
}

/// `random` is NULL to round to nearest.
template <typename C>
[[gnu::noinline]] void encode_block(const float *__restrict x, const uint16_t *__restrict random,
                                    typename C::Stored *__restrict codes, uint8_t *__restrict scales, int n) {
  for_groups(n, [&](int first, auto size) {
    uint32_t scale = 0;
    if constexpr (C::kGrouped) {
      int32_t largest = 0;
      for (int i = first; i < first + size; ++i) {
        const auto magnitude = static_cast<int32_t>(to_bits(x[i]) & 0x7fffffffU);
        const int32_t finite = magnitude < 0x7f800000 ? magnitude : 0;
        largest = largest > finite ? largest : finite;
      }
      scale = C::scale_for(static_cast<uint32_t>(largest));
      scales[first / kStateGroup] = static_cast<uint8_t>(scale);
    }
    if (random == nullptr) {
      for (int i = first; i < first + size; ++i) codes[i] = C::encode(x[i], scale, kToNearest);
    } else {
      for (int i = first; i < first + size; ++i) codes[i] = C::encode(x[i], scale, bias_of<C>(random[i]));
    }
  });
}

template <typename D, typename R>
[[gnu::noinline]] void join_block(const uint16_t *__restrict weights, const R *__restrict remainders,
                                  float *__restrict out, int n) {
  for (int i = 0; i < n; ++i) out[i] = Split<D, R>::join(weights[i], remainders[i]);
}

template <typename D, typename R>
[[gnu::noinline]] void divide_block(const float *__restrict masters, uint16_t *__restrict weights,
                                    R *__restrict remainders, int n) {
  for (int i = 0; i < n; ++i) Split<D, R>::divide(masters[i], weights[i], remainders[i]);
}

template <typename D>
[[gnu::noinline]] void round_block(const float *__restrict x, const uint16_t *__restrict random,
                                   uint16_t *__restrict weights, int n) {
  for (int i = 0; i < n; ++i) weights[i] = round_stochastically<D>(x[i], random[i]);
}

/// f(D, R) for the dtypes of a parameter and its remainder.
template <typename F>
GSC_HD void with_split(const ApplySpan &span, const F &f) {
  const auto with_weight = [&](auto remainder) {
    if (span.param_dtype == GSC_FP16) return f(Fp16{}, remainder);
    f(Bf16{}, remainder);
  };
  if (span.master == GSC_MASTER_SPLIT16) return with_weight(int16_t{});
  with_weight(int8_t{});
}

/// What Cursor (apply_cursor.h) is for state in fp32.
class CodedCursor {
 public:
  /// rate(slot): see rounds_stochastically.
  template <typename R>
  CodedCursor(const ApplySpan &span, const Cursor<float> &plain, int states, const R &rate)
      : span_(span), plain_(plain), states_(states) {
    for (int k = 0; k < states; ++k) {
      is_code_[k] = is_state_code(span.state_dtype[k]);
      is_random_[k] = is_code_[k] && rounds_stochastically(span.state_dtype[k], rate(k));
      draws_state_ = draws_state_ || is_random_[k];
    }
  }

  /// Blocks take so many instructions that processors see few of the next one's loads.
  GSC_HD void prefetch_after(int64_t i, bool with_grads) const {
    for (int k = 0; k < states_; ++k) {
      const int64_t size = dtype_bytes(span_.state_dtype[k]);
      prefetch(at(span_.state[k], i * size), kAhead * size, kCodedBlock * size);
    }
    const int64_t param_size = dtype_bytes(span_.param_dtype);
    prefetch(at(span_.param, i * param_size), kAhead * param_size, kCodedBlock * param_size);
    if (span_.remainder != nullptr) {
      const int64_t size = span_.master == GSC_MASTER_SPLIT16 ? 2 : 1;
      prefetch(at(span_.remainder, i * size), kAhead * size, kCodedBlock * size);
    }
    const int64_t grad_size = dtype_bytes(span_.grad_dtype);
    if (with_grads) prefetch(at(span_.grad, i * grad_size), kAhead * grad_size, kCodedBlock * grad_size);
  }
  void gradients(int64_t i, int n, float *out) const { plain_.gradients(i, n, out); }

  /// Slot k of n elements from i on as fp32: in place, or decoded into `buffer`; NULL if there is no such slot.
  float *load_state(int k, int64_t i, int n, float *buffer) const {
    if (k >= states_) return nullptr;
    if (!is_code_[k]) return static_cast<float *>(span_.state[k]) + i;
    with_state_code(span_.state_dtype[k], [&](auto code) {
      using C = decltype(code);
      decode_block<C>(static_cast<const typename C::Stored *>(span_.state[k]) + i, scales(k, i), buffer, n);
    });
    return buffer;
  }

  /// Stores what load_state has decoded.
  void store_states(int64_t i, int n, float *const *state) const {
    uint16_t random[kCodedBlock];
    if (draws_state_) draw(span_.seed, span_.first + i, span_.step, Draw::kState, random);
    for (int k = 0; k < states_; ++k) {
      if (!is_code_[k]) continue;
      with_state_code(span_.state_dtype[k], [&](auto code) {
        using C = decltype(code);
        encode_block<C>(state[k], is_random_[k] ? random : nullptr,
                        static_cast<typename C::Stored *>(span_.state[k]) + i, scales(k, i), n);
      });
    }
  }

  float *load_params(int64_t i, int n, float *out) const {
    if (span_.remainder == nullptr) {
      load_block(span_.param_dtype, param(i), out, n);
      return out;
    }
    with_split(span_, [&](auto dtype, auto remainder) {
      using R = decltype(remainder);
      join_block<decltype(dtype), R>(static_cast<const uint16_t *>(param(i)),
                                     static_cast<const R *>(span_.remainder) + i, out, n);
    });
    return out;
  }

  void store_params(int64_t i, int n, const float *params) const {
    if (span_.remainder != nullptr) {
      with_split(span_, [&](auto dtype, auto remainder) {
        using R = decltype(remainder);
        divide_block<decltype(dtype), R>(params, static_cast<uint16_t *>(param(i)),
                                         static_cast<R *>(span_.remainder) + i, n);
      });
    } else if (span_.master == GSC_MASTER_STOCHASTIC) {
      uint16_t random[kCodedBlock];
      draw(span_.seed, span_.first + i, span_.step, Draw::kParam, random);
      if (span_.param_dtype == GSC_FP16) {
        round_block<Fp16>(params, random, static_cast<uint16_t *>(param(i)), n);
      } else {
        round_block<Bf16>(params, random, static_cast<uint16_t *>(param(i)), n);
      }
    } else {
      store_block(span_.param_dtype, param(i), params, n);
    }
    if (span_.model_copy != nullptr) {
      store_block(span_.copy_dtype, at(span_.model_copy, i * dtype_bytes(span_.copy_dtype)), params, n);
    }
  }

 private:
  static constexpr int64_t kAhead = 4 * kCodedBlock;  ///< elements

  void *param(int64_t i) const { return at(span_.param, i * dtype_bytes(span_.param_dtype)); }
  uint8_t *scales(int k, int64_t i) const {
    return span_.scales[k] != nullptr ? span_.scales[k] + i / kStateGroup : nullptr;
  }

  const ApplySpan &span_;
  const Cursor<float> &plain_;
  const int states_;
  bool is_code_[kMaxStates] = {};
  bool is_random_[kMaxStates] = {};
  bool draws_state_ = false;
};

}  // namespace
}  // namespace gsc::cpu
