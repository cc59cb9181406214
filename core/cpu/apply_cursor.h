// SPDX-License-Identifier: Apache-2.0
// The arrays of a span in an optimizer step, block by block: gradients unscaled and clipped into a buffer that stays in
// L1, parameters and state in place or through a buffer, and the model copy. Included by apply_kernel.h only.
#pragma once

#include "core/cpu/convert.h"
#include "core/cpu/kernels.h"
#include "core/cpu/values.h"
#include "core/rules/gradient.h"
#include "core/rules/optim/formula.h"

namespace gsc::cpu {
inline namespace GSC_CPU_TARGET {

/// Elements per block: 512 bytes of each array. With twice as many the arrays can conflict in L1, depending on their
/// addresses, which halves the speed.
template <typename T>
constexpr int kStep = kRowBytes / static_cast<int>(sizeof(T));

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

/// prepare_gradients for 16-bit gradients that are only read, in vectors.
template <typename D>
[[gnu::noinline]] void read_gradients(const ApplySpan &span, const typename D::Stored *grad, int n,
                                      float *__restrict out) {
  constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(float));
  const float inv_scale = span.inv_scale;
  const float clip = static_cast<float>(span.coefficients->sign) * span.clip;  // exact
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store_vector(out + i, load_operand<D>(grad + i) * inv_scale * clip);
  for (; i < n; ++i) out[i] = unscale_gradient(D::widen(grad[i]), inv_scale, clip);
}

/// One parameter, with its state at index i.
template <typename F, typename T>
[[gnu::always_inline]] inline void update_element(T &p, T *__restrict s0, T *__restrict s1, T *__restrict s2, T g,
                                                  int64_t i, const Coefficients<T> &c, T ratio = T(1)) {
  T state[kMaxStates]{};
  if constexpr (F::kStates > 0) state[0] = s0[i];
  if constexpr (F::kStates > 1) state[1] = s1[i];
  if constexpr (F::kStates > 2) state[2] = s2[i];
  T param = p;
  update_of<F>(param, state, g, c, ratio);
  p = param;
  if constexpr (F::kStates > 0) s0[i] = state[0];
  if constexpr (F::kStates > 1) s1[i] = state[1];
  if constexpr (F::kStates > 2) s2[i] = state[2];
}

/// changed[k] is set where element k differs.
template <typename E>
void mark_changed(const char *a, const char *b, int n, uint8_t *changed) {
  for (int k = 0; k < n; ++k) {
    E x, y;
    std::memcpy(&x, a + k * static_cast<int>(sizeof x), sizeof x);
    std::memcpy(&y, b + k * static_cast<int>(sizeof y), sizeof y);
    changed[k] |= static_cast<uint8_t>(x != y);
  }
}

/// The bits of the parameters of a block, and of their remainders, before a step.
template <typename T>
class ParamBits {
 public:
  [[gnu::noinline]] ParamBits(const ApplySpan &span, int64_t first, int n) : span_(span), first_(first), n_(n) {
    std::memcpy(params_, params(), byte_count(n, param_bytes()));
    if (remainder_bytes() > 0) std::memcpy(remainders_, remainders(), byte_count(n, remainder_bytes()));
  }
  /// How many are still the same.
  [[gnu::noinline]] int64_t unchanged() const {
    uint8_t changed[kStep<T>]{};
    mark(param_bytes(), params_, params(), changed);
    mark(remainder_bytes(), remainders_, remainders(), changed);
    int64_t same = 0;
    for (int i = 0; i < n_; ++i) same += changed[i] == 0;
    return same;
  }

 private:
  [[gnu::noinline]] void mark(int64_t bytes, const char *before, const char *now, uint8_t *changed) const {
    if (bytes == 1) mark_changed<uint8_t>(before, now, n_, changed);
    if (bytes == 2) mark_changed<uint16_t>(before, now, n_, changed);
    if (bytes == 4) mark_changed<uint32_t>(before, now, n_, changed);
    if (bytes == 8) mark_changed<uint64_t>(before, now, n_, changed);
  }
  int64_t param_bytes() const { return dtype_bytes(span_.param_dtype); }
  int64_t remainder_bytes() const {
    if (!span_.coded || span_.remainder == nullptr) return 0;
    return span_.master == GSC_MASTER_SPLIT16 ? 2 : 1;
  }
  const char *params() const { return at(span_.param, first_ * param_bytes()); }
  const char *remainders() const { return at(span_.remainder, first_ * remainder_bytes()); }

  const ApplySpan &span_;
  const int64_t first_;
  const int n_;
  char params_[kStep<T> * sizeof(T)];
  char remainders_[kStep<T> * sizeof(int16_t)];
};

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

  /// Elements before the first cache line of the copy, if that is streamed.
  int misaligned() const {
    return streaming() ? min_int(span_.n, static_cast<int>(misaligned_elements(span_.model_copy, copy_bytes_))) : 0;
  }

  bool streaming() const { return span_.streaming && span_.model_copy != nullptr; }

  /// Always inlined: GCC takes a function that only prefetches for one without effect, and drops its calls.
  GSC_HD void prefetch_after(int64_t i, bool with_grads) const {
    const int ahead = span_.prefetch_bytes;
    if (ahead == 0) return;
    for (int k = 0; k < states_; ++k) prefetch(state(k, i), ahead, kRowBytes);
    prefetch(at(span_.param, i * param_bytes_), ahead, kStep<T> * param_bytes_);
    if (with_grads) prefetch(grad_address(i), ahead, kStep<T> * grad_bytes_);
  }

  /// Slot k from element i on; NULL if there is no such slot. State in fp32 or fp64 is worked on in place.
  T *load_state(int k, int64_t i, int /*n*/, T * /*buffer*/) const { return state(k, i); }
  void store_states(int64_t /*i*/, int /*n*/, T *const * /*state*/) const {}

  /// Signed, unscaled and clipped gradients.
  void gradients(int64_t i, int n, T *out) const {
    if (read_in_vectors(i, n, out)) return;
    if (is_wide(span_.grad_dtype)) {
      prepare_gradients<double>(span_, grad_address(i), n, out);
    } else {
      prepare_gradients<float>(span_, grad_address(i), n, out);
    }
  }

  /// Parameters as T: in place, or loaded into `buffer`.
  T *load_params(int64_t i, int n, T *buffer) const {
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
  /// read_gradients where it serves.
  bool read_in_vectors(int64_t i, int n, T *out) const {
    if (is_clamped(span_.clip_value) || span_.zero_grads || span_.write_grads) return false;
    return with_dtype(span_.grad_dtype, [&](auto d) {
      using D = decltype(d);
      if constexpr (std::is_same_v<T, float> && sizeof(typename D::Stored) == 2 && Values<D, float>::kInVectors) {
        read_gradients<D>(span_, reinterpret_cast<const typename D::Stored *>(grad_address(i)), n, out);
        return true;
      }
      return false;
    });
  }
  T *state(int k, int64_t i) const { return k < states_ ? static_cast<T *>(span_.state[k]) + i : nullptr; }
  char *grad_address(int64_t i) const { return at(span_.grad, i * grad_bytes_); }

  const ApplySpan &span_;
  const int states_;
  const int64_t grad_bytes_, param_bytes_, copy_bytes_;
  const bool in_place_;
};

}  // namespace GSC_CPU_TARGET
}  // namespace gsc::cpu
