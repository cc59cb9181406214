// SPDX-License-Identifier: Apache-2.0
// The sweeps of an optimizer step for parameters computed in fp32 whose state is in codes (core/rules/state_codes.h), or which are
// parts of split masters or rounded stochastically (split.h, random.h). A lane works on Width consecutive elements,
// the first at a multiple of Width in its tensor, so that neighbouring lanes have the elements of a scale. The dtypes of
// a tensor are dispatched where its arrays are loaded and stored.
#pragma once

#include "core/cuda/apply.cuh"
#include "core/rules/random.h"
#include "core/rules/split.h"
#include "core/rules/state_codes.h"

namespace gsc::cuda {

/// Elements of a lane in the sweep over the parameters: one for each half of a call of philox.
inline constexpr int kLaneElements = kPhiloxHalves;

/// Elements of `Size` bytes, of which the first `valid` exist; the others are 0, and are not read. In one piece if they
/// are aligned.
template <int Size, int Width>
GSC_DEVICE Words<Size * Width> load_part(const char *p, int valid) {
  using S = std::conditional_t<Size == 1, uint8_t, std::conditional_t<Size == 2, uint16_t, float>>;
  constexpr int kPiece = Size * Width < 16 ? Size * Width : 16;
  Words<Size *Width> r = {};
  if (valid == Width && is_aligned(p, kPiece)) {
#pragma unroll
    for (int i = 0; i < Size * Width; i += kPiece) {
      const Words<kPiece> piece = load_streaming<kPiece>(p + i);
#pragma unroll
      for (int j = 0; j < kPiece / 4; ++j) r.w[i / 4 + j] = piece.w[j];
    }
    return r;
  }
#pragma unroll
  for (int k = 0; k < Width; ++k) {
    if (k < valid) put_stored<S>(r, k, stored_of<S>(load_words<Size>(p + k * Size), 0));
  }
  return r;
}

template <int Size, int Width>
GSC_DEVICE void store_part(char *p, const Words<Size * Width> &x, int valid) {
  constexpr int kPiece = Size * Width < 16 ? Size * Width : 16;
  if (valid == Width && is_aligned(p, kPiece)) {
#pragma unroll
    for (int i = 0; i < Size * Width; i += kPiece) {
      Words<kPiece> piece;
#pragma unroll
      for (int j = 0; j < kPiece / 4; ++j) piece.w[j] = x.w[i / 4 + j];
      store_words<kPiece>(p + i, piece);
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < Width; ++k) {
    Words<Size> one;
    if constexpr (Size == 8) {
      one.w[0] = x.w[2 * k];
      one.w[1] = x.w[2 * k + 1];
    } else {
      one.w[0] = x.w[k * Size / 4] >> (k * Size % 4 * 8);
    }
    if (k < valid) store_words<Size>(p + k * Size, one);
  }
}

/// Elements of up to 4 bytes, of a size known at run time.
template <int Width>
GSC_DEVICE Words<4 * Width> load_sized(int64_t size, const char *p, int valid) {
  Words<4 *Width> r = {};
  const auto widen = [&](const auto &part) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof part / 4); ++i) r.w[i] = part.w[i];
  };
  if (size == 1) {
    widen(load_part<1, Width>(p, valid));
  } else if (size == 2) {
    widen(load_part<2, Width>(p, valid));
  } else {
    widen(load_part<4, Width>(p, valid));
  }
  return r;
}

/// As any dtype, rounded to nearest even.
template <bool Wide, int Width>
GSC_DEVICE void store_values(int32_t dtype, char *p, const float (&x)[Width], int valid) {
  with_dtype(dtype, [&](auto d) {
    using D = decltype(d);
    constexpr int kSize = sizeof(typename D::Stored);
    if constexpr (Wide || kSize < 8) {
      Words<kSize *Width> w = {};
#pragma unroll
      for (int k = 0; k < Width; ++k) put_element<D>(w, k, x[k]);
      store_part<kSize, Width>(p, w, valid);
    } else {
      __builtin_unreachable();
    }
  });
}

/// The arrays of a chunk: Arrays has those that are not in codes.
template <int States>
struct CodedArrays : Arrays<float, 0> {
  static constexpr int kSlots = States > 0 ? States : 1;
  char *codes[kSlots];
  char *scales[kSlots];
  char *remainder;  ///< NULL: none
  int64_t first;    ///< index of the first element in stochastic rounding
  int64_t step;     ///< number of this step there
  int32_t state_dtype[kSlots];

  GSC_DEVICE char *codes_at(int s, int i) const volatile {
    return codes[s] + i * static_cast<int>(dtype_bytes(state_dtype[s]));
  }
  GSC_DEVICE char *scale_at(int s, int i) const volatile {
    return scales[s] + i / kStateGroup * static_cast<int>(scale_size(state_dtype[s]));
  }
};

/// As find_arrays.
template <int States>
GSC_DEVICE bool find_coded_arrays(const ApplyParams &p, const Part &part, CodedArrays<States> &a) {
  using R = Rows<States>;
  if (lane_index() == 0) {
    const R rows(p, part.tensor);
    const DeviceTensor remainder = R::read(p, p.remainder, part.tensor);
    DeviceTensor scales[CodedArrays<States>::kSlots];
#pragma unroll
    for (int s = 0; s < States; ++s) scales[s] = R::read(p, p.scales[s], part.tensor);
    const int64_t first = p.step.offsets[part.tensor];
    a.step = step_number(p.step);
    const Place place = place_of(p.grads, part, rows.grad);
    fill_arrays<false>(p, rows, place, static_cast<Arrays<float, 0> &>(a));
    a.first = first + place.offset;
    a.remainder = p.remainder != nullptr ? address(remainder, place.offset) : nullptr;
#pragma unroll
    for (int s = 0; s < States; ++s) {
      const int32_t dtype = rows.state[s].dtype;
      a.codes[s] = address(rows.state[s], place.offset);
      a.state_dtype[s] = dtype;
      const int64_t scale_bytes = scale_size(dtype);
      a.scales[s] = static_cast<char *>(scales[s].data) + place.offset / kStateGroup * scale_bytes;
    }
  }
  __syncwarp();
  return a.n > 0;
}

/// f.template operator()<slot>() for the slots of formula F.
template <typename F, typename G>
GSC_DEVICE void for_slots(const G &f) {
  if constexpr (F::kStates > 0) f.template operator()<0>();
  if constexpr (F::kStates > 1) f.template operator()<1>();
  if constexpr (F::kStates > 2) f.template operator()<2>();
}

/// f(code's struct) for a dtype in codes of slot S of formula F.
template <typename F, int S, typename G>
GSC_DEVICE void with_code_of_slot(int32_t dtype, const G &f) {
  with_state_code(dtype, [&](auto code) {
    if constexpr (decltype(code)::kSlot == F::kKind.slots[S].holds) {
      f(code);
    } else {
      __builtin_unreachable();
    }
  });
}

/// Bit s: slot s is rounded stochastically.
template <typename F>
GSC_DEVICE unsigned random_slots(const volatile CodedArrays<F::kStates> &a, const Coefficients<float> &c) {
  unsigned result = 0;
  if constexpr (F::kStates > 0) {
#pragma unroll
    for (int s = 0; s < F::kStates; ++s) {
      const int32_t dtype = a.state_dtype[s];
      if (is_state_code(dtype) && rounds_stochastically(F::rate(s, c))) result |= 1U << s;
    }
  }
  return result;
}

/// The bits of the parameters of a lane, and of their remainders, before a step stores others, if it counts what it leaves
/// unchanged. A parameter with a remainder has 16 bits.
template <int Width>
struct ParamBits {
  uint32_t of[Width];

  /// `valid` elements from p on, and their remainders of `rest_bytes` from `rest` on, if that is not 0.
  GSC_DEVICE void read(const char *p, int bytes, const char *rest, int rest_bytes, int valid) {
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      of[k] = 0;
      if (k >= valid) continue;
      of[k] = bytes == 4 ? load_words<4>(p + k * 4).w[0] : load_words<2>(p + k * 2).w[0];
      if (rest_bytes == 0) continue;
      of[k] |= (rest_bytes == 2 ? load_words<2>(rest + k * 2).w[0] : load_words<1>(rest + k).w[0]) << 16;
    }
  }
  GSC_DEVICE void count(const ParamBits &now, int valid, int64_t *unchanged) const {
    int same = 0;
#pragma unroll
    for (int k = 0; k < Width; ++k) same += k < valid && of[k] == now.of[k] ? 1 : 0;
    if (same > 0) add_to(unchanged, same);
  }
};

/// The elements of a lane.
template <typename F, int Width>
struct CodedPack {
  using A = CodedArrays<F::kStates>;
  using Raw = Words<4 * Width>;
  /// 16 bits of each element.
  using Halves = Words<2 * Width>;
  static constexpr int kSlots = A::kSlots;

  float param[Width];
  float grad[Width];
  float state[Width][kMaxStates];

  /// From element i on; `valid` of them exist.
  template <bool WithGradients>
  GSC_DEVICE void load(const ApplyParams &p, const StepInput &in, const volatile A &a, int i, int valid, float sign) {
    Raw raw_state[kSlots];
    uint32_t scale[kSlots];
    for_slots<F>([&]<int S>() {
      raw_state[S] = load_sized<Width>(dtype_bytes(a.state_dtype[S]), a.codes_at(S, i), valid);
      scale[S] = valid > 0 && is_grouped(a.state_dtype[S]) ? load_scale(a, S, i) : 0;
    });
    const Raw raw_param = load_sized<Width>(dtype_bytes(a.param_dtype), a.param_at(i), valid);
    const Halves raw_remainder = load_remainders(p, a, i, valid);
    if constexpr (WithGradients) load_gradients(p, in, a, i, valid, sign);
    join_params(p, a, raw_param, raw_remainder);
    for_slots<F>([&]<int S>() { decode<S>(a.state_dtype[S], raw_state[S], scale[S]); });
  }

  GSC_DEVICE static uint32_t load_scale(const volatile A &a, int s, int i) {
    const char *p = a.scale_at(s, i);
    return scale_size(a.state_dtype[s]) == 1 ? load_words<1>(p).w[0] : load_words<2>(p).w[0];
  }

  GSC_DEVICE static Halves load_remainders(const ApplyParams &p, const volatile A &a, int i, int valid) {
    Halves raw = {};
    if (a.remainder == nullptr) return raw;
    if (p.step.master == GSC_MASTER_SPLIT16) return load_part<2, Width>(a.remainder + 2 * i, valid);
    const Words<Width> part = load_part<1, Width>(a.remainder + i, valid);
#pragma unroll
    for (int k = 0; k < Width / 4; ++k) raw.w[k] = part.w[k];
    return raw;
  }

  GSC_DEVICE void load_gradients(const ApplyParams &p, const StepInput &in, const volatile A &a, int i, int valid,
                                 float sign) {
    if (is_wide(a.grad_dtype)) return load_wide_gradients(p, in, a, i, valid, sign);
    const Raw raw = load_sized<Width>(dtype_bytes(a.grad_dtype), a.grad_at(i), valid);
    float x[Width];
    unpack(a.grad_dtype, raw, x);
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      x[k] = unscale_and_clip(p, in, x[k]);
      grad[k] = sign * x[k];
      if (p.step.zero_grads) x[k] = 0.0F;
    }
    if (p.step.zero_grads || p.step.write_grads) store_values<false>(a.grad_dtype, a.grad_at(i), x, valid);
  }

  /// In a loop, because they are rare and take much code.
  GSC_DEVICE void load_wide_gradients(const ApplyParams &p, const StepInput &in, const volatile A &a, int i, int valid,
                                      float sign) {
#pragma unroll
    for (int k = 0; k < Width; ++k) grad[k] = 0.0F;
#pragma unroll 1
    for (int k = 0; k < valid; ++k) {
      float g[1];
      prepare_wide_gradients(p, in, a, i + k, sign, g);
      if (p.step.zero_grads) *reinterpret_cast<double *>(a.grad_at(i + k)) = 0.0;
#pragma unroll
      for (int j = 0; j < Width; ++j) grad[j] = j == k ? g[0] : grad[j];
    }
  }

  GSC_DEVICE static void unpack(int32_t dtype, const Raw &raw, float (&x)[Width]) {
    Elements<float, Width>::unpack(dtype, raw, x);
  }

  GSC_DEVICE void join_params(const ApplyParams &p, const volatile A &a, const Raw &raw, const Halves &raw_remainder) {
    if (a.remainder == nullptr) return unpack(a.param_dtype, raw, param);
    with_split(p, a.param_dtype, [&](auto dtype, auto remainder) {
      using R = decltype(remainder);
#pragma unroll
      for (int k = 0; k < Width; ++k) {
        const auto rest = static_cast<R>(stored_of<std::make_unsigned_t<R>>(raw_remainder, k));
        param[k] = Split<decltype(dtype), R>::join(stored_of<uint16_t>(raw, k), rest);
      }
    });
  }

  /// f(D, R) for the dtypes of a parameter and its remainder.
  template <typename G>
  GSC_DEVICE static void with_split(const ApplyParams &p, int32_t dtype, const G &f) {
    const auto with_weight = [&](auto remainder) {
      if (dtype == GSC_FP16) return f(Fp16{}, remainder);
      f(Bf16{}, remainder);
    };
    if (p.step.master == GSC_MASTER_SPLIT16) return with_weight(int16_t{});
    with_weight(int8_t{});
  }

  template <int S>
  GSC_DEVICE void decode(int32_t dtype, const Raw &raw, uint32_t scale) {
    if (dtype == GSC_FP32) {
#pragma unroll
      for (int k = 0; k < Width; ++k) state[k][S] = stored_of<float>(raw, k);
      return;
    }
    with_code_of_slot<F, S>(dtype, [&](auto code) {
      using C = decltype(code);
#pragma unroll
      for (int k = 0; k < Width; ++k) state[k][S] = C::decode(stored_of<typename C::Stored>(raw, k), scale);
    });
  }

  /// The random bits of this lane's elements, for squares and weights and for means.
  struct Draws {
    Halves own, of_means;
  };
  GSC_DEVICE static Draws draw(const ApplyParams &p, const volatile A &a, int i, Draw purpose) {
    static_assert(Width == 8 || Width == 4);
    const int64_t element = a.first + i;
    const Philox x = philox(p.step.seed, element / kPhiloxElements, a.step, purpose);
    const auto at = static_cast<int>(element % kPhiloxElements);
    const uint32_t factor = half_factor(at / kPhiloxHalves);
    const bool upper = at % kPhiloxHalves >= Width;  // of a lane of four, which is partner of its neighbour
    Draws r;
#pragma unroll
    for (int k = 0; k < Width / 2; ++k) {
      const auto word = [&](bool other) {
        const uint32_t w = Width == 8 ? x.word[other ? k ^ 2 : k] : (upper != other ? x.word[k + 2] : x.word[k]);
        return (w * factor & 0xffffU) | (w >> 16) * factor << 16;
      };
      r.own.w[k] = word(false);
      r.of_means.w[k] = word(true);
    }
    return r;
  }

  /// `random`: see random_slots. Called by all lanes of a warp.
  GSC_DEVICE void store_state(const ApplyParams &p, const volatile A &a, int i, int valid, unsigned random) const {
    Draws draws = {};
    if (random != 0) draws = draw(p, a, i, Draw::kState);
    __syncwarp();  // every lane of a group has read its scale, which one lane writes
    for_slots<F>([&]<int S>() {
      constexpr bool kIsMean = F::kKind.slots[S].holds == Slot::kMoment;
      encode<S>(a, i, valid, (random >> S & 1) != 0, kIsMean ? draws.of_means : draws.own);
    });
  }

  template <int S>
  GSC_DEVICE void encode(const volatile A &a, int i, int valid, bool is_random, const Halves &random) const {
    const int32_t dtype = a.state_dtype[S];
    char *to = a.codes_at(S, i);
    if (dtype == GSC_FP32) {
      Raw raw;
#pragma unroll
      for (int k = 0; k < Width; ++k) raw.w[k] = to_bits(state[k][S]);
      store_part<4, Width>(to, raw, valid);
      return;
    }
    with_code_of_slot<F, S>(dtype, [&](auto code) {
      using C = decltype(code);
      using Stored = typename C::Stored;
      uint32_t scale = 0;
      if constexpr (C::kGrouped) {
        using Scale = typename C::Scale;
        scale = scale_of_group<C, S>(valid);
        if (valid > 0 && i % kStateGroup == 0) *reinterpret_cast<Scale *>(a.scale_at(S, i)) = static_cast<Scale>(scale);
      }
      Words<static_cast<int>(sizeof(Stored)) *Width> codes = {};
#pragma unroll
      for (int k = 0; k < Width; ++k) {
        const uint32_t bias = is_random ? stored_of<uint16_t>(random, k) : kToNearest;
        put_stored<Stored>(codes, k, static_cast<Stored>(C::encode(state[k][S], scale, bias)));
      }
      store_part<sizeof(Stored), Width>(to, codes, valid);
    });
  }

  /// The scale of the lanes that share one, of code C. Lanes beyond the end take part.
  template <typename C, int S>
  GSC_DEVICE uint32_t scale_of_group(int valid) const {
    int32_t largest = 0;
    int32_t smallness = 0;
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      const int32_t magnitude = k < valid ? C::magnitude_of(state[k][S]) : 0;
      largest = greatest(largest, magnitude);
      if constexpr (std::is_same_v<C, SquareLog8>) smallness = greatest(smallness, smallness_of(magnitude));
    }
#pragma unroll
    for (int lanes = 1; lanes < kStateGroup / Width; lanes *= 2) {
      largest = greatest(largest, __shfl_xor_sync(kFullMask, largest, lanes));
      if constexpr (std::is_same_v<C, SquareLog8>) {
        smallness = greatest(smallness, __shfl_xor_sync(kFullMask, smallness, lanes));
      }
    }
    return C::scale_for(static_cast<uint32_t>(largest), static_cast<uint32_t>(smallness));
  }

  GSC_DEVICE void store_param(const ApplyParams &p, const volatile A &a, int i, int valid) const {
    if (a.remainder != nullptr || p.step.master == GSC_MASTER_STOCHASTIC) {
      store_part<2, Width>(a.param_at(i), a.remainder != nullptr ? divide(p, a, i, valid) : round(p, a, i), valid);
    } else {
      store_values<false>(a.param_dtype, a.param_at(i), param, valid);
    }
    if (a.copy != nullptr) store_values<true>(a.copy_dtype, a.copy_at(i), param, valid);
  }

  GSC_DEVICE void store_counted(const ApplyParams &p, const volatile A &a, int i, int valid) const {
    const bool counts = p.step.count_unchanged;
    const int bytes = static_cast<int>(dtype_bytes(a.param_dtype));
    const int rest_bytes = a.remainder == nullptr ? 0 : (p.step.master == GSC_MASTER_SPLIT16 ? 2 : 1);
    const char *rest = a.remainder + i * rest_bytes;
    ParamBits<Width> before, now;
    if (counts) before.read(a.param_at(i), bytes, rest, rest_bytes, valid);
    store_param(p, a, i, valid);
    if (!counts) return;
    now.read(a.param_at(i), bytes, rest, rest_bytes, valid);
    before.count(now, valid, &p.step.record->unchanged);
  }

  /// Averages the parameters that have just been stored, which it reads again: rounding them once more takes more.
  GSC_DEVICE void average_weights(const ApplyParams &p, const volatile A &a, int i, int valid, float weight) {
    const Raw raw = load_sized<Width>(dtype_bytes(a.param_dtype), a.param_at(i), valid);
    join_params(p, a, raw, load_remainders(p, a, i, valid));
    Raw average = load_part<4, Width>(a.ema_at(i), valid);
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      average.w[k] = to_bits(average_weight(stored_of<float>(average, k), param[k], weight));
    }
    store_part<4, Width>(a.ema_at(i), average, valid);
  }

  /// The weights of split masters, whose remainders it stores.
  GSC_DEVICE Halves divide(const ApplyParams &p, const volatile A &a, int i, int valid) const {
    Halves weights = {};
    with_split(p, a.param_dtype, [&](auto dtype, auto remainder) {
      using R = decltype(remainder);
      Words<static_cast<int>(sizeof(R)) *Width> remainders = {};
#pragma unroll
      for (int k = 0; k < Width; ++k) {
        const auto parts = Split<decltype(dtype), R>::divide(param[k]);
        put_stored<uint16_t>(weights, k, static_cast<uint16_t>(parts.weight));
        put_stored<std::make_unsigned_t<R>>(remainders, k, static_cast<std::make_unsigned_t<R>>(parts.remainder));
      }
      store_part<sizeof(R), Width>(a.remainder + i * static_cast<int>(sizeof(R)), remainders, valid);
    });
    return weights;
  }

  /// Weights without masters.
  GSC_DEVICE Halves round(const ApplyParams &p, const volatile A &a, int i) const {
    const Halves random = draw(p, a, i, Draw::kParam).own;
    Halves weights = {};
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      const uint32_t bits = stored_of<uint16_t>(random, k);
      const uint32_t weight = a.param_dtype == GSC_FP16 ? round_stochastically<Fp16>(param[k], bits)
                                                        : round_stochastically<Bf16>(param[k], bits);
      put_stored<uint16_t>(weights, k, static_cast<uint16_t>(weight));
    }
    return weights;
  }
};

/// Of Width elements from i on, how many are before `end`.
template <int Width>
GSC_DEVICE int valid_elements(int i, int end) {
  return least(greatest(end - i, 0), Width);
}

template <typename F>
__global__ void __launch_bounds__(kThreads, apply_blocks(Arithmetic::kCoded))
    apply_coded_kernel(const __grid_constant__ ApplyParams p) {
  using Pack = CodedPack<F, kLaneElements>;
  __shared__ Coefficients<float> table[kMaxSharedGroups];
  __shared__ typename Pack::A all_arrays[kWarps];
  sweep_params<F>(p, table, [&](const StepInput &in, const Part &part, const Team &team) {
    auto &arrays = all_arrays[warp_index()];
    if (!find_coded_arrays(p, part, arrays)) return;
    const volatile auto &a = arrays;
    const Coefficients<float> &c = coefficients_in(p, table, a.coefficients);
    // A warp's lanes stay together, for the shuffles.
    constexpr int kWarpElements = 32 * kLaneElements;
    [[maybe_unused]] const unsigned random = random_slots<F>(a, c);
    [[maybe_unused]] float ratio = 1.0F;
    if constexpr (kNeedsNorms<F>) ratio = static_cast<float>(p.step.ratios[part.tensor]);
    for (int first = team.warp * kWarpElements; first < a.n; first += team.warps * kWarpElements) {
      const int i = first + team.lane * kLaneElements;
      const int valid = valid_elements<kLaneElements>(i, a.n);
      Pack x;
      x.template load<kUpdatesLast<F>>(p, in, a, i, valid, c.sign);
      step_pack<F, kLaneElements>(x, c, ratio);
      if (kUpdatesLast<F> && moves_state<F>(p)) x.store_state(p, a, i, valid, random);
      x.store_counted(p, a, i, valid);
      if (a.ema != nullptr) x.average_weights(p, a, i, valid, c.ema_weight);
    }
  });
}

/// A lane has as many elements as in the plain kernel, because the order of the sums is the same.
template <typename F>
__global__ void __launch_bounds__(kThreads, kMomentsBlocks)
    moments_coded_kernel(const __grid_constant__ ApplyParams p) {
  constexpr int kWidth = kPackWidth<float>;
  using Pack = CodedPack<F, kWidth>;
  using A = typename Pack::A;
  sweep_moments<F, float, A>(
      p, [&](const Part &part, A &arrays) { return find_coded_arrays(p, part, arrays); },
      [&](const StepInput &in, const volatile A &a, const Coefficients<float> &c, int begin, int end,
          double *param_columns, double *direction_columns) {
        const unsigned random = random_slots<F>(a, c);
        for (int first = begin; first < end; first += 32 * kWidth) {
          const int i = first + lane_index() * kWidth;
          const int valid = valid_elements<kWidth>(i, a.n);
          Pack x;
          x.template load<true>(p, in, a, i, valid, c.sign);
#pragma unroll
          for (int k = 0; k < kWidth; ++k) {
            const double direction = direction_of<F>(x.param[k], x.state[k], x.grad[k], c);
            const auto param = static_cast<double>(x.param[k]);
            if (k >= valid) continue;
            param_columns[k] += param * param;
            direction_columns[k] += direction * direction;
          }
          if constexpr (!kGradientsLast<F>) x.store_state(p, a, i, valid, random);
        }
      });
}

}  // namespace gsc::cuda
