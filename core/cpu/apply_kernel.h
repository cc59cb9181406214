// SPDX-License-Identifier: Apache-2.0
// The optimizer step over a span. The formula (core/rules/optim) is a plain loop that the compiler vectorises. With 16-bit
// gradients all of a vector is usually done in registers: gradients, update, model copy. Other steps go block by block:
// gradients are unscaled and clipped into a buffer that stays in L1, then the formula runs over it. Formulas that need
// norms of whole tensors run a sweep for the moments first, at the end of this file. Included by sweeps.h only.
#pragma once

#include "core/cpu/apply_cursor.h"
#include "core/cpu/coded/cursor.h"
#include "core/cpu/coded/groups.h"
#include "core/cpu/columns.h"
#include "core/cpu/values.h"
#include "core/rules/optim/formula.h"

namespace gsc::cpu {
namespace {

/// loop(c), with a local copy of the coefficients, which stores cannot alias. Whether a formula with averages evaluates is a
/// constant in it: compilers do not vectorise what depends on that and on a second condition of all elements. So is
/// whether something restrains the elements, which costs nothing where nothing does.
template <typename F, typename T, typename L>
[[gnu::always_inline]] inline auto in_phase(const Coefficients<T> &coefficients, const L &loop) {
  Coefficients<T> c = coefficients;
  T &condition = kAverages<F> ? c.evaluates : c.is_restrained;  // a formula with averages is never restrained
  const bool holds = condition != T(0);
  c.evaluates = c.is_restrained = T(0);
  if (holds) {
    condition = T(1);
    return loop(c);
  }
  return loop(c);
}

template <typename F, typename T>
[[gnu::noinline]] void update_block(T *__restrict p, T *__restrict s0, T *__restrict s1, T *__restrict s2,
                                    const T *__restrict g, int n, T ratio, const Coefficients<T> &coefficients) {
  in_phase<F>(coefficients, [&](const Coefficients<T> &c) GSC_INLINED {
    for (int i = 0; i < n; ++i) update_element<F>(p[i], s0, s1, s2, g[i], i, c, ratio);
  });
}

/// Whole vectors from element i on, each in registers from its gradients to the model copy; returns where they end.
template <typename F, typename G, typename P>
[[gnu::noinline]] int64_t update_vectors(const ApplySpan &arrays, int64_t i, const Coefficients<float> &coefficients,
                                         float *__restrict s0, float *__restrict s1, float *__restrict s2) {
  constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(float));
  const ApplySpan span = arrays;  // local, as are the coefficients: the stores below cannot alias them
  Coefficients<float> c = coefficients;
  c.evaluates = c.is_restrained = 0.0F;  // see update_in_vectors
  auto *grad = static_cast<typename G::Stored *>(span.grad);
  auto *param = static_cast<typename P::Stored *>(span.param);
  const float clip = c.sign * span.clip;  // exact: a sign does not change how products round
  const auto ratio = static_cast<float>(span.ratio);
  for (; i + kLanes <= span.n; i += kLanes) {
    if (const int ahead = span.prefetch_bytes; ahead != 0) {
      prefetch(grad + i, ahead, kLanes * sizeof *grad);
      prefetch(param + i, ahead, kLanes * sizeof *param);
      if constexpr (F::kStates > 0) prefetch(s0 + i, ahead, kVectorBytes);
      if constexpr (F::kStates > 1) prefetch(s1 + i, ahead, kVectorBytes);
      if constexpr (F::kStates > 2) prefetch(s2 + i, ahead, kVectorBytes);
    }
    float g[kLanes];
    float p[kLanes];
    store_vector(g, load_operand<G>(grad + i));
    if (span.zero_grads) store_vector(grad + i, HalfVector{});
    store_vector(p, load_operand<P>(param + i));
#pragma GCC unroll 1  // unrolled, it would no longer be vectorised
    for (int k = 0; k < kLanes; ++k) {
      update_element<F>(p[k], s0, s1, s2, unscale_gradient(g[k], span.inv_scale, clip), i + k, c, ratio);
    }
    const auto updated = load_vector<FloatVector>(p);
    store_vector(param + i, Values<P, float>::narrow(updated));
    if (span.model_copy == nullptr) continue;
    with_dtype(span.copy_dtype, [&](auto d) {
      using C = decltype(d);
      if constexpr (Values<C, float>::kInVectors) {
        auto *copy = static_cast<typename C::Stored *>(span.model_copy) + i;
        if (span.streaming) return stream_vector(copy, Values<C, float>::narrow(updated));
        store_vector(copy, Values<C, float>::narrow(updated));
      }
    });
  }
  return i;
}

/// The last sweep of a formula that needs norms: parameters only.
template <typename F, typename T>
[[gnu::noinline]] void move_block(T *__restrict p, const T *__restrict s0, const T *__restrict s1,
                                  const T *__restrict s2, int n, T ratio, const Coefficients<T> &coefficients) {
  in_phase<F>(coefficients, [&](const Coefficients<T> &c) GSC_INLINED {
    for (int i = 0; i < n; ++i) {
      T state[kMaxStates]{};
      if constexpr (F::kStates > 0) state[0] = s0[i];
      if constexpr (F::kStates > 1) state[1] = s1[i];
      if constexpr (F::kStates > 2) state[2] = s2[i];
      T param = p[i];
      apply_of<F>(param, state, ratio, c);
      p[i] = param;
    }
  });
}

/// Not with short vectors: compilers leave loops over so few lanes scalar.
template <typename F, typename T>
constexpr bool kUpdatesInVectors = kUpdatesLast<F> &&std::is_same_v<T, float> &&kVectorBytes >= 32;

/// update_vectors where it serves: steps with 16-bit gradients that are not clamped or written, parameters of fp32 or of
/// the same dtype that nothing restrains.
template <typename F>
int64_t update_in_vectors(const ApplySpan &span, int64_t begin, const Coefficients<float> &c) {
  const auto in_vectors = [](int32_t dtype) {
    return with_dtype(dtype, [](auto d) { return Values<decltype(d), float>::kInVectors; });
  };
  if (is_clamped(span.clip_value) || span.write_grads || c.evaluates != 0.0F || c.is_restrained != 0.0F) return begin;
  if (span.model_copy != nullptr && !in_vectors(span.copy_dtype)) return begin;
  return with_dtype(span.grad_dtype, [&](auto d) {
    using G = decltype(d);
    if constexpr (sizeof(typename G::Stored) == 2 && Values<G, float>::kInVectors) {
      const auto update = [&](auto kernel) {
        return kernel(span, begin, c, static_cast<float *>(span.state[0]), static_cast<float *>(span.state[1]),
                      static_cast<float *>(span.state[2]));
      };
      if (span.param_dtype == GSC_FP32) return update(update_vectors<F, G, Fp32>);
      if (span.param_dtype == G::kCode) return update(update_vectors<F, G, G>);
    }
    return begin;
  });
}

/// Up to kStep elements from element i on. C: Cursor<T> or CodedCursor.
template <typename F, typename T, typename C>
GSC_HD void apply_block(const ApplySpan &span, const C &cursor, int64_t i, int n, const Coefficients<T> &c) {
  if (span.n - i > n) cursor.prefetch_after(i, kUpdatesLast<F>);
  T buffers[kMaxStates][kStep<T>];
  T *state[kMaxStates];
  for (int k = 0; k < kMaxStates; ++k) state[k] = cursor.load_state(k, i, n, buffers[k]);
  T buffer[kStep<T>];
  const T ratio = static_cast<T>(span.ratio);
  T *p;
  if constexpr (!kUpdatesLast<F>) {
    p = cursor.load_params(i, n, buffer);
    move_block<F>(p, state[0], state[1], state[2], n, ratio, c);
  } else {
    T g[kStep<T>];
    cursor.gradients(i, n, g);
    p = cursor.load_params(i, n, buffer);
    update_block<F>(p, state[0], state[1], state[2], g, n, ratio, c);
    cursor.store_states(i, n, state);
  }
  cursor.store_params(i, n, p);
}

template <typename F>
CodedCursor coded_cursor(const ApplySpan &span, const Cursor<float> &plain, const Coefficients<float> &c) {
  static_assert(kStep<float> == kCodedBlock);
  return {span, plain, F::kStates, [&](int slot) {
            if constexpr (F::kStates > 0) return F::rate(slot, c);
            return 1.0F;
          }};
}

/// apply_block of a step that counts what it leaves unchanged; returns how many.
template <typename F, typename T, typename C>
[[gnu::noinline]] int64_t apply_counted(const ApplySpan &span, const C &cursor, int64_t i, int n,
                                        const Coefficients<T> &c) {
  const ParamBits<T> before(span, i, n);
  apply_block<F>(span, cursor, i, n, c);
  return before.unchanged();
}

template <typename F, typename T, typename C>
[[gnu::noinline]] void apply_uncounted(const ApplySpan &span, const C &cursor, int64_t i, int n,
                                       const Coefficients<T> &c) {
  apply_block<F>(span, cursor, i, n, c);
}

/// The sweep that updates the parameters: the only one, or the last.
template <typename F, typename T>
void apply_span(ApplySpan &span) {
  const Coefficients<T> c = narrow<T>(*span.coefficients);
  const Cursor<T> cursor(span, F::kStates);
  const auto blocks = [&](const auto &of, int64_t i, int64_t end) {
    for (; i < end; i += kStep<T>) {
      const int n = min_int(end - i, kStep<T>);
      if (span.count_unchanged) {
        span.unchanged += apply_counted<F>(span, of, i, n, c);
      } else {
        apply_block<F>(span, of, i, n, c);
      }
    }
  };
  const bool in_vectors = !span.count_unchanged;
  if constexpr (std::is_same_v<T, float>) {
    if (span.coded) {
      const CodedCursor coded = coded_cursor<F>(span, cursor, c);
      int64_t i = 0;
      if constexpr (kUpdatesInBatches<F>) {
        const auto by_blocks = [&](int64_t at, int n) { apply_uncounted<F>(span, coded, at, n, c); };
        if (in_vectors) i = update_in_batches<F>(span, coded, c, by_blocks);
      }
      blocks(coded, i, span.n);
      return;
    }
  }
  int64_t i = cursor.misaligned();
  blocks(cursor, 0, i);
  if constexpr (kUpdatesInVectors<F, T>) i = in_vectors ? update_in_vectors<F>(span, i, c) : i;
  blocks(cursor, i, span.n);
  if (cursor.streaming()) stream_fence();
}

template <typename F>
void apply(ApplySpan *span) {
  if (is_wide(span->param_dtype)) {
    apply_span<F, double>(*span);
  } else {
    apply_span<F, float>(*span);
  }
}

template <typename F, typename T>
[[gnu::noinline]] void moments_block(const T *__restrict p, T *__restrict s0, T *__restrict s1, T *__restrict s2,
                                     const T *__restrict g, T *__restrict direction, int n,
                                     const Coefficients<T> &coefficients) {
  const Coefficients<T> c = coefficients;
  for (int i = 0; i < n; ++i) {
    T state[kMaxStates]{};
    if constexpr (F::kStates > 0) state[0] = s0[i];
    if constexpr (F::kStates > 1) state[1] = s1[i];
    if constexpr (F::kStates > 2) state[2] = s2[i];
    direction[i] = F::moments(p[i], state, g[i], c);
    if constexpr (F::kStates > 0) s0[i] = state[0];
    if constexpr (F::kStates > 1) s1[i] = state[1];
    if constexpr (F::kStates > 2) s2[i] = state[2];
  }
}

template <typename F, typename T>
[[gnu::noinline]] void direction_block(const T *__restrict p, const T *__restrict g, T *__restrict direction, int n,
                                       const Coefficients<T> &coefficients) {
  const Coefficients<T> c = coefficients;
  for (int i = 0; i < n; ++i) direction[i] = F::direction(p[i], g[i], c);
}

/// The first sweep of a formula that needs norms. C: Cursor<T> or CodedCursor.
template <typename F, typename T, typename C>
ChunkNorms moments_of(const ApplySpan &span, const C &cursor, const Coefficients<T> &c) {
  constexpr int kWidth = kGroupBytes / static_cast<int>(sizeof(T));
  DoubleColumns<kWidth> param_squares;
  DoubleColumns<kWidth> direction_squares;
  for (int64_t i = 0; i < span.n; i += kStep<T>) {
    const int n = min_int(span.n - i, kStep<T>);
    if (span.n - i > n) cursor.prefetch_after(i, true);
    T g[kStep<T>];
    T buffer[kStep<T>];
    T direction[kStep<T>];
    [[maybe_unused]] T buffers[kMaxStates][kStep<T>];
    cursor.gradients(i, n, g);
    const T *p = cursor.load_params(i, n, buffer);
    if constexpr (kGradientsLast<F>) {
      direction_block<F>(p, g, direction, n, c);
    } else {
      T *state[kMaxStates];
      for (int k = 0; k < kMaxStates; ++k) state[k] = cursor.load_state(k, i, n, buffers[k]);
      moments_block<F>(p, state[0], state[1], state[2], g, direction, n, c);
      cursor.store_states(i, n, state);
    }
    param_squares.add_squares(p, n);
    direction_squares.add_squares(direction, n);
  }
  return {param_squares.total(), direction_squares.total()};
}

template <typename F, typename T>
void moments_span(ApplySpan *span) {
  const Coefficients<T> c = narrow<T>(*span->coefficients);
  const Cursor<T> cursor(*span, kGradientsLast<F> ? 0 : F::kStates);
  if constexpr (std::is_same_v<T, float>) {
    if (span->coded) {
      span->norms = moments_of<F>(*span, coded_cursor<F>(*span, cursor, c), c);
      return;
    }
  }
  span->norms = moments_of<F>(*span, cursor, c);
}

template <typename F>
void moments(ApplySpan *span) {
  if (is_wide(span->param_dtype)) {
    moments_span<F, double>(span);
  } else {
    moments_span<F, float>(span);
  }
}

using SpanKernel = void (*)(ApplySpan *);

/// NULL for single-sweep formulas.
template <typename F>
constexpr SpanKernel moments_kernel() {
  if constexpr (kNeedsNorms<F>) return moments<F>;
  return nullptr;
}

}  // namespace
}  // namespace gsc::cpu
