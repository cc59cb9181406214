// SPDX-License-Identifier: Apache-2.0
// The optimizer step on the device. One sweep over the chunks unscales and clips gradients in registers, runs the
// formula (core/rules/optim), and writes parameters, state and the 16-bit copy. It goes in reverse order of check,
// whose last gradients may still be in L2. The last block counts the step and, if requested, updates the scaler. A
// formula that needs norms of whole tensors runs a sweep for the moments first. Formulas are compiled for fp32 and
// fp64; the dtypes of gradients, parameters and copy are dispatched per chunk.
#pragma once

#include "core/cuda/elements.cuh"
#include "core/cuda/step.cuh"
#include "core/rules/gradient.h"
#include "core/rules/optim/formula.h"

namespace gsc::cuda {

/// That of a sweep over plain state.
template <typename T>
inline constexpr Arithmetic kArithmeticOf = sizeof(T) == 4 ? Arithmetic::kFp32 : Arithmetic::kFp64;

/// False if the parameters alone move, which only formulas that average do.
template <typename F>
GSC_DEVICE bool moves_state(const ApplyParams &p) {
  if constexpr (kAverages<F>) return p.step.phase == Phase::kStep;
  return true;
}

/// The coefficients of a group by the formula `variant`, one of those of this file (GSC_FORMULAS) whose sweep is F; but
/// for `ema_weight` and what restrains them.
template <typename F>
GSC_DEVICE Coefficients<double> coefficients_in_sweep(Variant variant, const Hyper &h, double lr, bool maximize,
                                                      int64_t step) {
  Coefficients<double> result{};
  const auto take = [&](Variant own, auto formula) {
    if constexpr (std::is_same_v<SweepOf<decltype(formula)>, F>) {
      if (variant == own) result = coefficients_of_formula<decltype(formula)>(h, lr, maximize, step, {});
    }
  };
#define GSC_TAKE(enumerator, formula) take(Variant::enumerator, formula{});
  GSC_FORMULAS(GSC_TAKE)
#undef GSC_TAKE
  return result;
}

/// F: the sweep's formula.
template <typename F, typename T>
GSC_DEVICE void fill_group_table(const ApplyParams &p, Coefficients<T> *table) {
  if (shares_groups(p) && static_cast<int32_t>(threadIdx.x) < p.step.group_count) {
    const GroupRecord &g = p.step.groups[threadIdx.x];
    const int64_t step = p.step.record->applied + 1;
    Coefficients<T> &c = table[threadIdx.x];
    c = narrow<T>(coefficients_in_sweep<F>(p.step.variant, g.hyper, learning_rate(g), p.step.maximize, step));
    if (p.ema != nullptr) c.ema_weight = static_cast<T>(ema_weight(g.hyper, step));
    restrain(g.hyper, c);
  }
  __syncthreads();
}

/// A row of coefficients, in shared memory and read on use: in registers they would compete with the data being
/// loaded. With many groups, or lags, each warp has a slot for those of its part.
template <typename T>
GSC_DEVICE const Coefficients<T> &coefficients_in(const ApplyParams &p, Coefficients<T> *table, int32_t row) {
  if (shares_groups(p)) return table[row];
  static_assert(kWarps <= kMaxSharedGroups, "a place for every warp");
  Coefficients<T> &own = table[warp_index()];
  if (lane_index() == 0) own = narrow<T>(p.step.coefficients[row]);
  __syncwarp();
  return own;
}

/// The arrays of a chunk. Each warp keeps them in shared memory and reads an address on use, which volatile enforces:
/// in registers the addresses would compete with the data being loaded.
template <typename T, int States>
struct Arrays {
  char *grad;
  char *param;
  char *copy;
  T *state[States > 0 ? States : 1];
  T *ema;  ///< NULL: none
  int32_t grad_dtype;
  int32_t param_dtype;
  int32_t copy_dtype;
  int32_t coefficients;  ///< row of them
  int n;
  int head;  ///< first element from which all arrays can be accessed in packs; n: none

  GSC_DEVICE char *grad_at(int i) const volatile { return grad + i * static_cast<int>(dtype_bytes(grad_dtype)); }
  GSC_DEVICE char *param_at(int i) const volatile { return param + i * static_cast<int>(dtype_bytes(param_dtype)); }
  GSC_DEVICE char *copy_at(int i) const volatile { return copy + i * static_cast<int>(dtype_bytes(copy_dtype)); }
  GSC_DEVICE char *state_at(int s, int i) const volatile { return reinterpret_cast<char *>(state[s] + i); }
  GSC_DEVICE char *ema_at(int i) const volatile { return reinterpret_cast<char *>(ema + i); }
};

/// 16-bit elements in a line of 128 bytes. Where packs begin with a line, no line is written by two warps, which would
/// cost the memory two partial writes.
inline constexpr unsigned kLineElements = 64;
/// Elements of a chunk that make it worth it to handle up to a line of them one by one.
inline constexpr int kMinLineChunk = 4096;

/// What the tables have of a tensor. They are all read before the first is used: in a list of small tensors each may
/// have to be waited for. The row of a list that is not there is that of the parameters.
template <int States>
struct Rows {
  DeviceTensor grad, param, copy, ema;
  DeviceTensor state[States > 0 ? States : 1];
  int32_t coefficients;

  GSC_DEVICE Rows(const ApplyParams &p, int64_t tensor)
      : grad(p.grads.tensors[tensor]),
        param(p.params[tensor]),
        copy(read(p, p.model_copy, tensor)),
        ema(read(p, p.ema, tensor)) {
#pragma unroll
    for (int s = 0; s < States; ++s) state[s] = p.state[s][tensor];
    coefficients = has_tensor_coefficients(p.step) ? static_cast<int32_t>(tensor) : p.step.group_of[tensor];
  }
  GSC_DEVICE static DeviceTensor read(const ApplyParams &p, const DeviceTensor *list, int64_t tensor) {
    return (list != nullptr ? list : p.params)[tensor];
  }
};

/// Fills in `a`. With `Lines`, packs of long parts begin where a line of the gradient does.
template <bool Lines, typename R, typename T, int States>
GSC_DEVICE void fill_arrays(const ApplyParams &p, const R &rows, const Place &place, Arrays<T, States> &a) {
  a.n = is_wide(rows.param.dtype) == (sizeof(T) == 8) ? place.n : 0;
  a.coefficients = rows.coefficients;
  a.grad = address(rows.grad, place.offset);
  a.grad_dtype = rows.grad.dtype;
  a.param = address(rows.param, place.offset);
  a.param_dtype = rows.param.dtype;
  a.copy = p.model_copy != nullptr ? address(rows.copy, place.offset) : nullptr;
  a.copy_dtype = p.model_copy != nullptr ? rows.copy.dtype : 0;
  a.ema = p.ema != nullptr ? static_cast<T *>(rows.ema.data) + place.offset : nullptr;
  constexpr int kWidth = kPackWidth<T>;
  unsigned heads = pack_heads<kWidth>(a.grad, rows.grad.dtype) & pack_heads<kWidth>(a.param, rows.param.dtype);
  if (a.copy != nullptr) heads &= pack_heads<kWidth>(a.copy, rows.copy.dtype);
  if (a.ema != nullptr) heads &= pack_heads<kWidth>(a.ema, kArithmeticDtype<T>);
#pragma unroll
  for (int s = 0; s < States; ++s) {
    a.state[s] = static_cast<T *>(rows.state[s].data) + place.offset;
    heads &= pack_heads<kWidth>(a.state[s], kArithmeticDtype<T>);
  }
  a.head = first_pack(heads, a.n);
  if (Lines && heads != 0 && a.n >= kMinLineChunk) {
    const auto at = reinterpret_cast<uintptr_t>(a.grad) / static_cast<uintptr_t>(dtype_bytes(rows.grad.dtype));
    const unsigned to_line = (0U - static_cast<unsigned>(at) - static_cast<unsigned>(a.head)) % kLineElements;
    a.head += static_cast<int>(to_line) / kWidth * kWidth;
  }
}

/// Fills in `a`, which belongs to the calling warp, and whose lanes have met since they last read it. False if the part
/// is empty or its parameters are of the other arithmetic type.
template <bool Lines, typename T, int States>
GSC_DEVICE bool find_arrays(const ApplyParams &p, const Part &part, Arrays<T, States> &a) {
  if (lane_index() == 0) {
    const Rows<States> rows(p, part.tensor);
    fill_arrays<Lines>(p, rows, place_of(p.grads, part, rows.grad), a);
  }
  __syncwarp();
  return a.n > 0;
}

/// In P, the type that stand-alone unscale and clip use for this dtype.
template <typename P>
GSC_DEVICE P unscale_and_clip(const ApplyParams &p, const StepInput &in, P g) {
  g = unscale_gradient(g, static_cast<P>(in.inv_scale), static_cast<P>(in.clip));
  const P limit = static_cast<P>(p.step.clip_value);
  return is_clamped(limit) ? clamp_magnitude(g, limit) : g;
}

/// Gradients from what was loaded: unscaled, clipped, signed, and written back if requested.
template <typename P, typename T, int Width, int States>
GSC_DEVICE void prepare_gradients(const ApplyParams &p, const StepInput &in, const volatile Arrays<T, States> &a, int i,
                                  T sign, P (&x)[Width], T (&g)[Width]) {
#pragma unroll
  for (int k = 0; k < Width; ++k) x[k] = unscale_and_clip(p, in, x[k]);
  if (p.step.write_grads) store_elements<P, Width>(a.grad_dtype, a.grad_at(i), x);
#pragma unroll
  for (int k = 0; k < Width; ++k) g[k] = sign * static_cast<T>(x[k]);
}

/// The same for fp64 gradients of parameters that are computed in fp32: rare, so one by one to save registers.
template <typename T, int Width, int States>
GSC_DEVICE void prepare_wide_gradients(const ApplyParams &p, const StepInput &in, const volatile Arrays<T, States> &a,
                                       int i, T sign, T (&g)[Width]) {
  double *grad = reinterpret_cast<double *>(a.grad_at(i));
#pragma unroll
  for (int k = 0; k < Width; ++k) {
    const double x = unscale_and_clip(p, in, grad[k]);
    if (p.step.write_grads) grad[k] = x;
    g[k] = sign * static_cast<T>(x);
  }
}

/// One pack of every array.
template <typename T, int Width, int States>
struct Pack {
  using E = Elements<T, Width>;
  T param[Width];
  T grad[Width];
  T state[Width][kMaxStates];

  /// Issues all loads before the first use.
  template <bool WithGradients>
  GSC_DEVICE void load(const ApplyParams &p, const StepInput &in, const volatile Arrays<T, States> &a, int i, T sign) {
    typename E::Raw raw_state[States > 0 ? States : 1];
#pragma unroll
    for (int s = 0; s < States; ++s) raw_state[s] = E::load(kArithmeticDtype<T>, a.state_at(s, i));
    const typename E::Raw raw_param = E::load(a.param_dtype, a.param_at(i));
    if constexpr (WithGradients) load_gradients(p, in, a, i, sign);
    E::unpack(a.param_dtype, raw_param, param);
#pragma unroll
    for (int s = 0; s < States; ++s) {
      T x[Width];
      E::unpack(kArithmeticDtype<T>, raw_state[s], x);
#pragma unroll
      for (int k = 0; k < Width; ++k) state[k][s] = x[k];
    }
  }

  GSC_DEVICE void load_gradients(const ApplyParams &p, const StepInput &in, const volatile Arrays<T, States> &a, int i,
                                 T sign) {
    if (!E::fits(a.grad_dtype)) {
      prepare_wide_gradients(p, in, a, i, sign, grad);
    } else {
      const typename E::Raw raw = E::load(a.grad_dtype, a.grad_at(i));
      if (sizeof(T) == 8 && is_wide(a.grad_dtype)) {
        T x[Width];
        E::unpack(a.grad_dtype, raw, x);
        prepare_gradients(p, in, a, i, sign, x, grad);
      } else {
        float x[Width];
        E::unpack(a.grad_dtype, raw, x);
        prepare_gradients(p, in, a, i, sign, x, grad);
      }
    }
    if (p.step.zero_grads) {
      const T zeros[Width] = {};
      store_elements<T, Width>(a.grad_dtype, a.grad_at(i), zeros);
    }
  }

  GSC_DEVICE void store_state(const volatile Arrays<T, States> &a, int i) const {
#pragma unroll
    for (int s = 0; s < States; ++s) {
      T x[Width];
#pragma unroll
      for (int k = 0; k < Width; ++k) x[k] = state[k][s];
      store_elements<T, Width>(kArithmeticDtype<T>, a.state_at(s, i), x);
    }
  }

  GSC_DEVICE void store_param(const volatile Arrays<T, States> &a, int i) const {
    store_elements<T, Width>(a.param_dtype, a.param_at(i), param);
    if (a.copy != nullptr) store_elements<T, Width>(a.copy_dtype, a.copy_at(i), param);
  }

  /// Averages the parameters as store_param rounds them.
  GSC_DEVICE void average_weights(const volatile Arrays<T, States> &a, int i, T weight) const {
    T average[Width];
    E::unpack(kArithmeticDtype<T>, E::load(kArithmeticDtype<T>, a.ema_at(i)), average);
    with_dtype(a.param_dtype, [&](auto d) {
      using D = decltype(d);
      if constexpr (is_wide(D::kCode) == (sizeof(T) == 8)) {
#pragma unroll
        for (int k = 0; k < Width; ++k) {
          const T stored = Converter<D>::widen(narrow_to<Converter<D>>(param[k]));
          average[k] = average_weight(average[k], stored, weight);
        }
      } else {
        __builtin_unreachable();
      }
    });
    store_elements<T, Width>(kArithmeticDtype<T>, a.ema_at(i), average);
  }

  /// Counts the elements that store_param will leave as they are. One by one, because registers are short.
  GSC_DEVICE void count_unchanged(const ApplyParams &p, const volatile Arrays<T, States> &a, int i) const {
    int same = 0;
    with_dtype(a.param_dtype, [&](auto d) {
      using D = decltype(d);
      constexpr int kSize = sizeof(typename D::Stored);
      if constexpr (is_wide(D::kCode) == (sizeof(T) == 8)) {
#pragma unroll
        for (int k = 0; k < Width; ++k) {
          const Words<kSize> before = load_words<kSize>(a.param_at(i + k));
          Words<kSize> now = {};
          put_element<D>(now, 0, param[k]);
          bool is_same = before.w[0] == now.w[0];
          if constexpr (kSize == 8) is_same = is_same && before.w[1] == now.w[1];
          same += is_same ? 1 : 0;
        }
      } else {
        __builtin_unreachable();
      }
    });
    if (same > 0) add_to(&p.step.record->unchanged, same);
  }
};

/// Zeroes the gradients of a skipped step.
template <typename T>
GSC_DEVICE void zero_part(const ApplyParams &p, const Part &part, const Team &team) {
  if (is_wide(p.params[part.tensor].dtype) != (sizeof(T) == 8)) return;
  const DeviceTensor &t = p.grads.tensors[part.tensor];
  const Place place = place_of(p.grads, part, t);
  fill_span(address(t, place.offset), t.dtype, place.n, 0.0, team);
}

/// Counts the step and updates the scaler, in the last block.
GSC_DEVICE void finish_step(const ApplyParams &p, bool skip) {
  if (!p.finish || !is_last_block(&p.counters->apply_ticket)) return;
  if (threadIdx.x != 0) return;
  count_step(p.step, skip);
  if (p.step.update == nullptr) return;
  UpdateSummary summary = empty_summary();
  add_to_summary(summary, *p.step.checked);
  conclude_update(*p.step.update, summary);
}

/// Calls f(part, team) for every part of a chunk of this thread's team, last part first.
template <typename F>
GSC_DEVICE void for_parts_backwards(const ApplyParams &p, const F &f) {
  const Team team = make_team(p.grads.warps_per_chunk);
  const int64_t step = static_cast<int64_t>(gridDim.x) * team.count;
  const int64_t first = p.first_chunk << p.grads.split;
  int64_t i = (p.last_chunk << p.grads.split) - 1 - (static_cast<int64_t>(blockIdx.x) * team.count + team.index);
  for (; i >= first; i -= step) {
    f(part_of(p.grads, i), team);
    // All lanes have done with what the warp keeps of this part.
    __syncwarp();
  }
}

/// A sweep of formula F over the parameters of arithmetic type T: the whole of a kernel. work(in, part, team) works on
/// a part of a chunk.
template <typename F, typename T, typename Work>
GSC_DEVICE void sweep_params(const ApplyParams &p, Coefficients<T> *table, const Work &work) {
  const StepInput in = read_scalars(p);
  if (in.skip) {
    if (p.step.zero_grads) {
      for_parts_backwards(p, [&](const Part &part, const Team &team) { zero_part<T>(p, part, team); });
    }
  } else {
    fill_group_table<F>(p, table);
    for_parts_backwards(p, [&](const Part &part, const Team &team) { work(in, part, team); });
  }
  finish_step(p, in.skip);
}

/// The steps of a pack's elements. Whether something restrains them is asked for once a pack, and known in each branch:
/// the compiler leaves out of the first what restrains.
template <typename F, int Width, typename P, typename T>
GSC_DEVICE void step_pack(P &x, const Coefficients<T> &c, T ratio) {
  const auto step = [&] {
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      if constexpr (kUpdatesLast<F>) {
        update_of<F>(x.param[k], x.state[k], x.grad[k], c, ratio);
      } else {
        apply_of<F>(x.param[k], x.state[k], ratio, c);
      }
    }
  };
  if (c.is_restrained == T(0)) [[likely]] {
    step();
  } else {
    step();
  }
}

template <typename F, typename T>
__global__ void __launch_bounds__(kThreads, apply_blocks(kArithmeticOf<T>))
    apply_kernel(const __grid_constant__ ApplyParams p) {
  __shared__ Coefficients<T> table[kMaxSharedGroups];
  __shared__ Arrays<T, F::kStates> all_arrays[kWarps];
  sweep_params<F>(p, table, [&](const StepInput &in, const Part &part, const Team &team) {
    Arrays<T, F::kStates> &arrays = all_arrays[warp_index()];
    if (!find_arrays<true>(p, part, arrays)) return;
    const volatile auto &a = arrays;
    const Coefficients<T> &c = coefficients_in(p, table, a.coefficients);
    [[maybe_unused]] T ratio = T(1);
    if constexpr (kNeedsNorms<F>) ratio = static_cast<T>(p.step.ratios[part.tensor]);
    for_packs<T>(a.n, a.head, team, [&]<int Width>(int i) {
      Pack<T, Width, F::kStates> x;
      x.template load<kUpdatesLast<F>>(p, in, a, i, c.sign);
      step_pack<F, Width>(x, c, ratio);
      if (kUpdatesLast<F> && moves_state<F>(p)) x.store_state(a, i);
      if (p.step.count_unchanged) x.count_unchanged(p, a, i);
      x.store_param(a, i);
      if (p.ema != nullptr) x.average_weights(a, i, c.ema_weight);
    });
  });
}

/// State slots of the first sweep.
template <typename F>
inline constexpr int kFirstStates = kGradientsLast<F> ? 0 : F::kStates;

/// The first sweep on an element; its direction.
template <typename F, typename T>
GSC_DEVICE double direction_of(T param, T *state, T grad, const Coefficients<T> &c) {
  if constexpr (kGradientsLast<F>)
    return static_cast<double>(F::direction(param, grad, c));
  else
    return static_cast<double>(F::moments(param, state, grad, c));
}

/// The moments of one pack; its columns collect the squares of parameters and directions.
template <typename F, typename T, int Width>
GSC_DEVICE void update_moments(const ApplyParams &p, const StepInput &in, const volatile Arrays<T, kFirstStates<F>> &a,
                               int i, const Coefficients<T> &c, double *param_columns, double *direction_columns) {
  Pack<T, Width, kFirstStates<F>> x;
  x.template load<true>(p, in, a, i, c.sign);
#pragma unroll
  for (int k = 0; k < Width; ++k) {
    const double direction = direction_of<F>(x.param[k], x.state[k], x.grad[k], c);
    const auto param = static_cast<double>(x.param[k]);
    param_columns[k] += param * param;
    direction_columns[k] += direction * direction;
  }
  x.store_state(a, i);
}

/// The first sweep of a formula that needs norms: the moments and, per chunk, the sums of squares of parameters and
/// directions. A warp takes whole tiles of T, a lane one group of each row. A: the arrays of a chunk, which find(part,
/// arrays) fills in. tile(in, arrays, coefficients, begin, end, param_columns, direction_columns) works on this lane's
/// groups of the tile [begin, end).
template <typename F, typename T, typename A, typename Find, typename Tile>
GSC_DEVICE void sweep_moments(const ApplyParams &p, const Find &find, const Tile &tile) {
  constexpr int kWidth = kPackWidth<T>;
  constexpr int kTile = kTileBytes / static_cast<int>(sizeof(T));
  __shared__ Coefficients<T> table[kMaxSharedGroups];
  __shared__ A all_arrays[kWarps];
  __shared__ double param_sums[2][kWarps][kMaxTiles];
  __shared__ double direction_sums[2][kWarps][kMaxTiles];
  const StepInput in = read_scalars(p);
  if (in.skip) return;
  fill_group_table<F>(p, table);
  const Team team = make_team(p.grads.warps_per_chunk);
  int half = 0;
  for (int64_t base = p.last_chunk - 1 - static_cast<int64_t>(blockIdx.x) * team.count; base >= p.first_chunk;
       base -= static_cast<int64_t>(gridDim.x) * team.count, half ^= 1) {
    const int64_t chunk = base - team.index;
    A &arrays = all_arrays[warp_index()];
    const bool active = chunk >= p.first_chunk && find(whole_chunk(p.grads, chunk), arrays);
    const volatile auto &a = arrays;
    if (active) {
      const Coefficients<T> &c = coefficients_in(p, table, a.coefficients);
      for (int t = team.warp; t * kTile < a.n; t += team.warps) {
        double param_columns[kWidth] = {};
        double direction_columns[kWidth] = {};
        tile(in, a, c, t * kTile, least(a.n, (t + 1) * kTile), param_columns, direction_columns);
        const double param_sum = fold<kWidth>(param_columns);
        const double direction_sum = fold<kWidth>(direction_columns);
        if (team.lane == 0) {
          param_sums[half][team.index][t] = param_sum;
          direction_sums[half][team.index][t] = direction_sum;
        }
      }
    }
    // Also: all lanes have done with the arrays and their coefficients, of which only lane 0, which fills them in, will
    // read something yet.
    __syncthreads();
    if (active && team.leads()) {
      ChunkNorms sums = {0.0, 0.0};
      for (int t = 0; t * kTile < a.n; ++t) {
        sums.param += param_sums[half][team.index][t];
        sums.direction += direction_sums[half][team.index][t];
      }
      p.partials[chunk].norms = sums;
    }
  }
}

template <typename F, typename T>
__global__ void __launch_bounds__(kThreads, kMomentsBlocks) moments_kernel(const __grid_constant__ ApplyParams p) {
  using A = Arrays<T, kFirstStates<F>>;
  sweep_moments<F, T, A>(
      p, [&](const Part &part, A &arrays) { return find_arrays<false>(p, part, arrays); },
      [&](const StepInput &in, const volatile A &a, const Coefficients<T> &c, int begin, int end, double *param_columns,
          double *direction_columns) {
        constexpr int kWidth = kPackWidth<T>;
        for (int i = begin + lane_index() * kWidth; i < end; i += kGroups * kWidth) {
          if (a.head == 0 && a.n - i >= kWidth) {
            update_moments<F, T, kWidth>(p, in, a, i, c, param_columns, direction_columns);
            continue;
          }
#pragma unroll
          for (int k = 0; k < kWidth; ++k) {
            if (i + k < a.n) update_moments<F, T, 1>(p, in, a, i + k, c, param_columns + k, direction_columns + k);
          }
        }
      });
}

}  // namespace gsc::cuda
