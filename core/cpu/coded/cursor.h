// SPDX-License-Identifier: Apache-2.0
// The arrays of a span whose state is in codes (core/rules/state_codes.h), or whose parameters are parts of split
// masters or rounded stochastically (split.h, random.h): decoded to fp32 into buffers in L1, and back. Included by
// apply_kernel.h only.
#pragma once

#include <algorithm>
#include <bit>

#include "core/cpu/apply_cursor.h"
#include "core/cpu/lanes.h"
#include "core/rules/random.h"
#include "core/rules/split.h"
#include "core/rules/state_codes.h"

namespace gsc::cpu {
inline namespace GSC_CPU_TARGET {

/// Elements of a block.
constexpr int kCodedBlock = 128;

/// The keys of philox's rounds in every lane, for one seed.
struct Keys {
  Uint64Vector of[kPhiloxRounds][2];

  explicit Keys(uint64_t seed) {
    auto key0 = static_cast<uint32_t>(seed);
    auto key1 = static_cast<uint32_t>(seed >> 32);
    for (auto &key : of) {
      key[0] = Uint64Vector{} + uint64_t{key0};
      key[1] = Uint64Vector{} + uint64_t{key1};
      key0 += kPhiloxKeyStep0;
      key1 += kPhiloxKeyStep1;
    }
  }
};

constexpr int kCalls = kVectorBytes / 8;  ///< of philox in a vector
/// Vectors of calls at a time: a call is a chain of operations, each of which waits for the one before.
constexpr int kMaxChains = 4;
/// The lower halves of 64-bit lanes of a, below those of b.
GSC_HD Uint64Vector lower_joined(Uint64Vector a, Uint64Vector b) {
#if defined(__AVX512F__)
  const auto x = reinterpret_cast<__m512i>(a), y = reinterpret_cast<__m512i>(b);
  return reinterpret_cast<Uint64Vector>(_mm512_mask_shuffle_epi32(x, 0xaaaa, y, _MM_PERM_CCAA));
#else
  return (a & 0xffffffffU) | b << 32;
#endif
}

/// Elements that `chains` vectors of calls serve.
constexpr int drawn(int chains) { return chains * kCalls * kPhiloxElements; }

/// Counters of `Chains` vectors of calls, from that for element `first` on, a multiple of kPhiloxElements. A vector has a
/// call in each 64 bits, of the first half and of the second in turn, so that interleaving leaves them in order.
template <int Chains>
GSC_HD void start_calls(int64_t first, int64_t step, Draw purpose, Uint64Vector (&x)[Chains][4]) {
  Uint64Vector order;
  for (uint64_t lane = 0; lane < kCalls; ++lane) order[lane] = lane / 2 + lane % 2 * (kCalls / 2);
  order += static_cast<uint64_t>(first / kPhiloxElements);
#pragma GCC unroll 4
  for (auto &chain : x) {
    chain[0] = order;
    chain[1] = order >> 32;
    chain[2] = Uint64Vector{} + static_cast<uint32_t>(step);
    chain[3] = Uint64Vector{} + static_cast<uint64_t>(purpose);
    order += static_cast<uint64_t>(kCalls);
  }
}

/// Philox's rounds. Products take the lower half of 64 bits, so the upper half of a word is not cleared.
template <int Chains>
GSC_HD void run_rounds(const Keys &keys, Uint64Vector (&x)[Chains][4]) {
#pragma GCC unroll 10
  for (int round = 0; round < kPhiloxRounds; ++round) {
#pragma GCC unroll 4
    for (auto &chain : x) {
      const Uint64Vector a = multiply_lower(chain[0], kPhiloxMultiplier0);
      const Uint64Vector b = multiply_lower(chain[2], kPhiloxMultiplier1);
      chain[0] = b >> 32 ^ chain[1] ^ keys.of[round][0];
      chain[1] = b;
      chain[2] = a >> 32 ^ chain[3] ^ keys.of[round][1];
      chain[3] = a;
    }
  }
}

/// The halves of as many calls, in their order.
template <int Chains>
[[gnu::noinline]] void draw_halves(const Keys &keys, int64_t first, int64_t step, Draw purpose,
                                   uint16_t *__restrict out) {
  Uint64Vector x[Chains][4];
  start_calls(first, step, purpose, x);
  run_rounds(keys, x);
  static_assert(std::endian::native == std::endian::little);  // lower halves first
#pragma GCC unroll 4
  for (const auto &chain : x) {
    const Uint64Vector words01 = lower_joined(chain[0], chain[1]);
    const Uint64Vector words23 = lower_joined(chain[2], chain[3]);
    store_vector(out, interleaved<0>(words01, words23));
    store_vector(out + kPhiloxHalves * (kCalls / 2), interleaved<1>(words01, words23));
    out += kPhiloxHalves * kCalls;
  }
}

/// 16 random bits for each element of a block.
struct BlockDraw {
  static constexpr int kChains = std::max(1, kCodedBlock / drawn(1));
  uint16_t own[kCodedBlock];
  uint16_t of_means[kCodedBlock];

  /// For n elements from `first` on, the first of a group.
  [[gnu::noinline]] BlockDraw(const Keys &keys, int64_t first, int64_t step, Draw purpose, int n) {
    uint16_t halves[kChains * kCalls * kPhiloxHalves];
    draw_halves<kChains>(keys, first, step, purpose, halves);
    for (int i = 0; i < n; i += kPhiloxHalves) {
      const auto factor = static_cast<uint16_t>(half_factor(i / kPhiloxHalves % (kPhiloxElements / kPhiloxHalves)));
      const uint16_t *half = halves + i / kPhiloxElements * kPhiloxHalves;
      for (int h = 0; h < kPhiloxHalves; ++h) own[i + h] = static_cast<uint16_t>(half[h] * factor);
      for (int h = 0; h < kPhiloxHalves; ++h) of_means[i + h] = own[i + (h ^ kMeanPartner)];
    }
  }
  /// What is added to codes C.
  template <typename C>
  const uint16_t *of() const {
    return C::kSlot == Slot::kMoment ? of_means : own;
  }
};

/// f(first, n) for each group of a block of n elements.
template <typename F>
GSC_HD void for_groups(int n, const F &f) {
  int i = 0;
  for (; i + kStateGroup <= n; i += kStateGroup) f(i, Constant<kStateGroup>{});
  if (i < n) f(i, n - i);
}

template <typename C>
[[gnu::noinline]] void decode_block(const typename C::Stored *__restrict codes,
                                    const typename C::Scale *__restrict scales, float *__restrict out, int n) {
  for_groups(n, [&](int first, auto size) {
    const auto *from = codes + first;
    float *to = out + first;
    const uint32_t scale = C::kGrouped ? scales[first / kStateGroup] : 0;
    for_lanes(size, [&](auto lanes, int i) {
      using L = decltype(lanes);
      L::store(to + i, C::template decode<L>(L::load(from + i), L::all(scale)));
    });
  });
}

/// The scale of a group of code C, in all lanes.
template <typename C>
GSC_HD VectorLanes::Uint scale_of_group(const float *x, int n) {
  VectorLanes::Int largest{}, smallness{};
  int32_t rest_largest = 0, rest_smallness = 0;
  for_lanes(n, [&](auto lanes, int i) {
    using L = decltype(lanes);
    const auto magnitude = C::template magnitude_of<L>(L::load(x + i));
    if constexpr (std::is_same_v<L, VectorLanes>) {
      largest = greatest(largest, magnitude);
      smallness = greatest(smallness, smallness_of<L>(magnitude));
    } else {
      rest_largest = greatest(rest_largest, magnitude);
      rest_smallness = greatest(rest_smallness, smallness_of(magnitude));
    }
  });
  const auto of_all = [](VectorLanes::Int vector, int32_t rest) {
    return VectorLanes::as_uint(largest_in_all(greatest(vector, VectorLanes::Int{} + rest)));
  };
  return C::template scale_for<VectorLanes>(of_all(largest, rest_largest), of_all(smallness, rest_smallness));
}

/// `random` is NULL to round to nearest.
template <typename C>
[[gnu::noinline]] void encode_block(const float *__restrict x, const uint16_t *__restrict random,
                                    typename C::Stored *__restrict codes, typename C::Scale *__restrict scales, int n) {
  for_groups(n, [&](int first, auto size) {
    const float *from = x + first;
    auto *to = codes + first;
    VectorLanes::Uint scale{};
    if constexpr (C::kGrouped) {
      scale = scale_of_group<C>(from, size);
      scales[first / kStateGroup] = static_cast<typename C::Scale>(scale[0]);
    }
    const auto encode = [&](const auto &bias) {
      for_lanes(size, [&](auto lanes, int i) {
        using L = decltype(lanes);
        L::store_low(to + i, C::template encode<L>(L::load(from + i), L::from_all(scale), bias(lanes, i)));
      });
    };
    if (random == nullptr) {
      encode([](auto lanes, int /*i*/) { return decltype(lanes)::all(kToNearest); });
    } else {
      const uint16_t *drawn = random + first;
      encode([&](auto lanes, int i) { return decltype(lanes)::load(drawn + i); });
    }
  });
}

template <typename D, typename R>
[[gnu::noinline]] void join_block(const uint16_t *__restrict weights, const R *__restrict remainders,
                                  float *__restrict out, int n) {
  for_lanes(n, [&](auto lanes, int i) {
    using L = decltype(lanes);
    L::store(out + i, Split<D, R>::template join<L>(L::load(weights + i), L::load(remainders + i)));
  });
}

template <typename D, typename R>
[[gnu::noinline]] void divide_block(const float *__restrict masters, uint16_t *__restrict weights,
                                    R *__restrict remainders, int n) {
  for_lanes(n, [&](auto lanes, int i) {
    using L = decltype(lanes);
    const auto parts = Split<D, R>::template divide<L>(L::load(masters + i));
    L::store_low(weights + i, parts.weight);
    L::store_low(remainders + i, parts.remainder);
  });
}

template <typename D>
[[gnu::noinline]] void round_block(const float *__restrict x, const uint16_t *__restrict random,
                                   uint16_t *__restrict weights, int n) {
  for_lanes(n, [&](auto lanes, int i) {
    using L = decltype(lanes);
    L::store_low(weights + i, round_stochastically<D, L>(L::load(x + i), L::load(random + i)));
  });
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
      : span_(span), plain_(plain), states_(states), keys_(span.seed) {
    for (int k = 0; k < states; ++k) {
      is_code_[k] = is_state_code(span.state_dtype[k]);
      is_random_[k] = is_code_[k] && rounds_stochastically(rate(k));
      draws_state_ = draws_state_ || is_random_[k];
      will_read(span.state[k], dtype_bytes(span.state_dtype[k]));
    }
    will_read(span.param, dtype_bytes(span.param_dtype));
    if (span.remainder != nullptr) will_read(span.remainder, span.master == GSC_MASTER_SPLIT16 ? 2 : 1);
    will_read(span.grad, dtype_bytes(span.grad_dtype));
  }

  /// Blocks take so many instructions that processors see few of the next one's loads.
  GSC_HD void prefetch_after(int64_t i, bool with_grads) const {
    for (int k = 0; k < arrays_ - (with_grads ? 0 : 1); ++k) {
      prefetch(at(address_[k], i * size_[k]), kAhead * size_[k], kCodedBlock * size_[k]);
    }
  }
  /// Whether slot k is rounded stochastically.
  bool is_random(int k) const { return is_random_[k]; }
  BlockDraw draw_for(Draw purpose, int64_t i, int n) const { return {keys_, span_.first + i, span_.step, purpose, n}; }
  GSC_HD const Keys &keys() const { return keys_; }
  void gradients(int64_t i, int n, float *out) const { plain_.gradients(i, n, out); }

  /// Slot k of n elements from i on as fp32: in place, or decoded into `buffer`; NULL if there is no such slot.
  float *load_state(int k, int64_t i, int n, float *buffer) const {
    if (k >= states_) return nullptr;
    if (!is_code_[k]) return static_cast<float *>(span_.state[k]) + i;
    with_state_code(span_.state_dtype[k], [&](auto code) {
      using C = decltype(code);
      decode_block<C>(static_cast<const typename C::Stored *>(span_.state[k]) + i, scales<C>(k, i), buffer, n);
    });
    return buffer;
  }

  /// Stores what load_state has decoded.
  void store_states(int64_t i, int n, float *const *state) const {
    if (span_.coefficients->evaluates != 0.0) return;  // state is as it was
    if (!draws_state_) return store_states(i, n, state, nullptr);
    const BlockDraw random = draw_for(Draw::kState, i, n);
    store_states(i, n, state, &random);
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
      const BlockDraw random = draw_for(Draw::kParam, i, n);
      if (span_.param_dtype == GSC_FP16) {
        round_block<Fp16>(params, random.own, static_cast<uint16_t *>(param(i)), n);
      } else {
        round_block<Bf16>(params, random.own, static_cast<uint16_t *>(param(i)), n);
      }
    } else {
      store_block(span_.param_dtype, param(i), params, n);
    }
    if (span_.model_copy != nullptr) {
      store_block(span_.copy_dtype, at(span_.model_copy, i * dtype_bytes(span_.copy_dtype)), params, n);
    }
  }

 private:
  void store_states(int64_t i, int n, float *const *state, const BlockDraw *random) const {
    for (int k = 0; k < states_; ++k) {
      if (!is_code_[k]) continue;
      with_state_code(span_.state_dtype[k], [&](auto code) {
        using C = decltype(code);
        encode_block<C>(state[k], is_random_[k] ? random->template of<C>() : nullptr,
                        static_cast<typename C::Stored *>(span_.state[k]) + i, scales<C>(k, i), n);
      });
    }
  }

  static constexpr int64_t kAhead = 4 * kCodedBlock;  ///< elements

  void will_read(const void *address, int64_t size) {
    address_[arrays_] = address;
    size_[arrays_++] = size;
  }
  void *param(int64_t i) const { return at(span_.param, i * dtype_bytes(span_.param_dtype)); }
  template <typename C>
  typename C::Scale *scales(int k, int64_t i) const {
    return C::kGrouped ? static_cast<typename C::Scale *>(span_.scales[k]) + i / kStateGroup : nullptr;
  }

  const ApplySpan &span_;
  const Cursor<float> &plain_;
  const int states_;
  const Keys keys_;
  bool is_code_[kMaxStates] = {};
  bool is_random_[kMaxStates] = {};
  bool draws_state_ = false;
  // What a step reads, gradients last, and the bytes of an element.
  const void *address_[kMaxStates + 3];
  int64_t size_[kMaxStates + 3];
  int arrays_ = 0;
};

}  // namespace GSC_CPU_TARGET
}  // namespace gsc::cpu
