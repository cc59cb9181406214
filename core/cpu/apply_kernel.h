// SPDX-License-Identifier: Apache-2.0
// The optimizer step over a span. Gradients are unscaled and clipped block by block into a buffer that stays in L1,
// then the formula (core/rules/optim) runs over it, with parameters and state in place. One plain loop, vectorised by
// the compiler, serves every formula. Formulas that need norms of whole tensors run a sweep for the moments first, at
// the end of this file. Included by kernels.cpp only.
#pragma once

#include "core/cpu/columns.h"
#include "core/cpu/convert.h"
#include "core/cpu/kernels.h"
#include "core/rules/gradient.h"

namespace gsc::cpu {
namespace {

/// Elements per block: 512 bytes of each array. With twice as many the arrays can conflict in L1, depending on their
/// addresses, which halves the speed.
template <typename T>
constexpr int kStep = kRowBytes / static_cast<int>(sizeof(T));

/// Prefetch distance. Each array is a separate stream, and there are more of them than the hardware tracks well.
constexpr int kPrefetchBytes = 1024;

/// g = clamp((g * inv_scale) * clip) in P, the type that stand-alone unscale and clip use for this dtype, so that a
/// fused step matches separate ones; then sign * g in T, the arithmetic type of the parameters.
template <typename P, typename T>
[[gnu::noinline]] void prepare_gradients(const ApplySpan &span, char *grad, int n, T *__restrict out) {
  P buffer[kStep<T>];
  const P *g = buffer;
  if (dtype_bytes(span.grad_dtype) == static_cast<int64_t>(sizeof(P))) {
    g = reinterpret_cast<const P *>(grad);
  } else {
    load_block(span.grad_dtype, grad, buffer, n);
  }
  const P inv_scale = static_cast<P>(span.inv_scale);
  const P clip = static_cast<P>(span.clip);
  const P limit = static_cast<P>(span.clip_value);
  const T sign = static_cast<T>(span.coefficients->sign);
  if (!is_clamped(limit) && !span.zero_grads && !span.write_grads) {
    for (int i = 0; i < n; ++i) out[i] = sign * static_cast<T>(unscale_gradient(g[i], inv_scale, clip));
    return;
  }
  for (int i = 0; i < n; ++i) buffer[i] = unscale_gradient(g[i], inv_scale, clip);
  if (is_clamped(limit)) {
    for (int i = 0; i < n; ++i) buffer[i] = clamp_magnitude(buffer[i], limit);
  }
  if (span.zero_grads) {
    std::memset(grad, 0, byte_count(n, dtype_bytes(span.grad_dtype)));
  } else if (span.write_grads) {
    store_block(span.grad_dtype, grad, buffer, n);
  }
  for (int i = 0; i < n; ++i) out[i] = sign * static_cast<T>(buffer[i]);
}

/// The arrays of a span, block by block. 16-bit parameters pass through a buffer of T.
template <typename T>
class Cursor {
 public:
  explicit Cursor(const ApplySpan &span, int states)
      : span_(span),
        states_(states),
        grad_bytes_(dtype_bytes(span.grad_dtype)),
        param_bytes_(dtype_bytes(span.param_dtype)),
        copy_bytes_(dtype_bytes(span.copy_dtype)),
        in_place_(param_bytes_ == static_cast<int64_t>(sizeof(T))) {}

  /// Length of the first block: up to a cache-line boundary of the copy if that is streamed.
  int first_step() const {
    if (!streaming()) return kStep<T>;
    const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(span_.model_copy) % kCacheLine);
    return misaligned == 0 ? kStep<T> : static_cast<int>((kCacheLine - misaligned) / copy_bytes_);
  }

  bool streaming() const { return span_.streaming && span_.model_copy != nullptr; }

  void prefetch_after(int64_t i, bool with_grads) const {
    for (int k = 0; k < states_; ++k) prefetch(state(k, i), kPrefetchBytes, kRowBytes);
    prefetch(at(span_.param, i * param_bytes_), kPrefetchBytes, kStep<T> * param_bytes_);
    if (with_grads) prefetch(grad_address(i), kPrefetchBytes, kStep<T> * grad_bytes_);
  }

  T *state(int k, int64_t i) const { return k < states_ ? static_cast<T *>(span_.state[k]) + i : nullptr; }

  /// Signed, unscaled and clipped gradients.
  void gradients(int64_t i, int n, T *out) const {
    if (is_wide(span_.grad_dtype)) {
      prepare_gradients<double>(span_, grad_address(i), n, out);
    } else {
      prepare_gradients<float>(span_, grad_address(i), n, out);
    }
  }

  /// Parameters as T: in place, or loaded into `buffer`.
  T *params(int64_t i, int n, T *buffer) const {
    if (in_place_) return static_cast<T *>(span_.param) + i;
    load_block(span_.param_dtype, at(span_.param, i * param_bytes_), buffer, n);
    return buffer;
  }

  /// Stores the parameters if they are in a buffer, and the model copy.
  void store_params(int64_t i, int n, const T *params) const {
    if (!in_place_) store_block(span_.param_dtype, at(span_.param, i * param_bytes_), params, n);
    if (span_.model_copy == nullptr) return;
    char *copy = at(span_.model_copy, i * copy_bytes_);
    if (span_.streaming && n == kStep<T>) {
      alignas(kCacheLine) char rounded[kStep<T> * sizeof(double)];
      store_block(span_.copy_dtype, rounded, params, n);
      stream_copy(copy, rounded, n * copy_bytes_);
    } else {
      store_block(span_.copy_dtype, copy, params, n);
    }
  }

 private:
  char *grad_address(int64_t i) const { return at(span_.grad, i * grad_bytes_); }

  const ApplySpan &span_;
  const int states_;
  const int64_t grad_bytes_, param_bytes_, copy_bytes_;
  const bool in_place_;
};

template <typename F, typename T>
[[gnu::noinline]] void update_block(T *__restrict p, T *__restrict s0, T *__restrict s1, T *__restrict s2,
                                    const T *__restrict g, int n, const Coefficients<T> &coefficients) {
  const Coefficients<T> c = coefficients;  // local: the stores below cannot alias it
  for (int i = 0; i < n; ++i) {
    T param = p[i];
    T state[kMaxStates]{};
    if constexpr (F::kStates > 0) state[0] = s0[i];
    if constexpr (F::kStates > 1) state[1] = s1[i];
    if constexpr (F::kStates > 2) state[2] = s2[i];
    F::update(param, state, g[i], c);
    p[i] = param;
    if constexpr (F::kStates > 0) s0[i] = state[0];
    if constexpr (F::kStates > 1) s1[i] = state[1];
    if constexpr (F::kStates > 2) s2[i] = state[2];
  }
}

/// The last sweep of a formula that needs norms: parameters only.
template <typename F, typename T>
[[gnu::noinline]] void move_block(T *__restrict p, const T *__restrict s0, const T *__restrict s1,
                                  const T *__restrict s2, int n, T ratio, const Coefficients<T> &coefficients) {
  const Coefficients<T> c = coefficients;
  for (int i = 0; i < n; ++i) {
    T state[kMaxStates]{};
    if constexpr (F::kStates > 0) state[0] = s0[i];
    if constexpr (F::kStates > 1) state[1] = s1[i];
    if constexpr (F::kStates > 2) state[2] = s2[i];
    T param = p[i];
    F::apply(param, state, ratio, c);
    p[i] = param;
  }
}

/// The sweep that updates the parameters: the only one, or the last.
template <typename F, typename T>
void apply_span(const ApplySpan &span) {
  const Coefficients<T> c = narrow<T>(*span.coefficients);
  const Cursor<T> cursor(span, F::kStates);
  int n = min_int(span.n, cursor.first_step());
  for (int64_t i = 0; i < span.n; i += n, n = min_int(span.n - i, kStep<T>)) {
    if (span.n - i > n) cursor.prefetch_after(i, !kNeedsNorms<F>);
    T buffer[kStep<T>];
    T *p;
    if constexpr (kNeedsNorms<F>) {
      p = cursor.params(i, n, buffer);
      move_block<F>(p, cursor.state(0, i), cursor.state(1, i), cursor.state(2, i), n, static_cast<T>(span.ratio), c);
    } else {
      T g[kStep<T>];
      cursor.gradients(i, n, g);
      p = cursor.params(i, n, buffer);
      update_block<F>(p, cursor.state(0, i), cursor.state(1, i), cursor.state(2, i), g, n, c);
    }
    cursor.store_params(i, n, p);
  }
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

/// The first sweep of a formula that needs norms.
template <typename F, typename T>
void moments_span(ApplySpan *span) {
  constexpr int kWidth = kGroupBytes / static_cast<int>(sizeof(T));
  const Coefficients<T> c = narrow<T>(*span->coefficients);
  const Cursor<T> cursor(*span, F::kStates);
  DoubleColumns<kWidth> param_squares;
  DoubleColumns<kWidth> direction_squares;
  for (int64_t i = 0; i < span->n; i += kStep<T>) {
    const int n = min_int(span->n - i, kStep<T>);
    if (span->n - i > n) cursor.prefetch_after(i, true);
    T g[kStep<T>];
    T buffer[kStep<T>];
    T direction[kStep<T>];
    cursor.gradients(i, n, g);
    const T *p = cursor.params(i, n, buffer);
    moments_block<F>(p, cursor.state(0, i), cursor.state(1, i), cursor.state(2, i), g, direction, n, c);
    param_squares.add_squares(p, n);
    direction_squares.add_squares(direction, n);
  }
  span->norms = {param_squares.total(), direction_squares.total()};
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
