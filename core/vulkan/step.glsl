// SPDX-License-Identifier: Apache-2.0
// The elements of a step: what both sweeps load and store. REAL is the arithmetic type, OF(name) the function of rules.h
// in it; CODED is 1 for state in codes, split masters and stochastic rounding, which are computed in fp32.
#include "workgroup.glsl"
#include "span.glsl"

const int kBytes = kIsWide ? 8 : 4;

shared COEFFICIENTS shared_coefficients;

/// The arrays of a chunk or of a part of it; those that do not exist have no data.
struct Arrays {
  Span grad;
  Span param;
  Span copy;
  Span ema;
  Span remainder;
  Span state[kMaxStates];
  Span scales[kMaxStates];
  bool is_random[kMaxStates];
  int64_t first;  ///< index of the first element in stochastic rounding
  int64_t step;
};

/// False if the parameters are of the other arithmetic type. `slots`: of the sweep.
bool find_arrays(const ApplyArgs a, const Place place, int slots, out Arrays r) {
  r.param = span_of(a.params, place.tensor, place.offset);
  if (is_wide(r.param.dtype) != kIsWide) return false;
  r.grad = span_of(a.grads.tensors, place.tensor, place.offset);
  r.copy = span_of(a.model_copy, place.tensor, place.offset);
  r.ema = span_of(a.ema, place.tensor, place.offset);
  r.remainder = span_of(a.remainder, place.tensor, place.offset);
  barrier();
  if (THREAD == 0) shared_coefficients = OF(coefficients)(a, place.tensor);
  barrier();
  for (int s = 0; s < slots; ++s) {
    r.state[s] = span_of(a.state[s], place.tensor, place.offset);
#if CODED
    r.scales[s] = span_of(a.scales[s], place.tensor, place.offset / kStateGroup);
    r.is_random[s] = slot_is_random(kSpecial, s, r.state[s].dtype, shared_coefficients);
#endif
  }
#if CODED
  r.first = random_index(a, place);
  r.step = step_number(a.step);
#endif
  return true;
}

REAL widen_value(int dtype, uint64_t stored) {
#if CODED
  return widen_float(dtype, uint(stored));
#else
  return kIsWide ? REAL(bits_double(stored)) : REAL(widen_float(dtype, uint(stored)));
#endif
}
/// An element of any dtype, rounded once.
void store_value(const Span span, int i, REAL x) {
  if (kIsWide) {
    store_stored(span, i, narrow_double(span.dtype, double(x)));
  } else if (span.dtype == kFp64) {
    store_f64(address_of(span, i), double(x));
  } else {
    store_word(span, i, narrow_float(span.dtype, float(x)));
  }
}

/// A gradient unscaled, clipped and signed. It is written back or zeroed if requested, and with `is_last`.
REAL take_gradient(const ApplyArgs a, const StepInput scalars, const Span grad, int i, bool is_last) {
  REAL g;
  if (grad.bytes == 8) {
    const double x = prepare_double(load_f64(address_of(grad, i)), scalars, a.step.clip_value);
    if (is_last && a.step.write_grads) store_f64(address_of(grad, i), x);
    g = REAL(x);
  } else {
    const float x = prepare_float(widen_float(grad.dtype, load_word(grad, i)), scalars, a.step.clip_value);
    if (is_last && a.step.write_grads) store_word(grad, i, narrow_float(grad.dtype, x));
    g = REAL(x);
  }
  if (is_last && a.step.zero_grads) store_stored(grad, i, 0ul);
  return shared_coefficients.sign * g;
}

#if CODED
shared int group_largest[kMaxStates][kMostThreads / kStateGroup];
shared int group_smallness[kMaxStates][kMostThreads / kStateGroup];

float load_param(const ApplyArgs a, const Arrays r, int i) {
  const uint word = load_word(r.param, i);
  if (r.remainder.data == 0ul) return widen_float(r.param.dtype, word);
  const uint64_t p = address_of(r.remainder, i);
  return join_master(r.param.dtype, a.step.master, word, r.remainder.bytes == 2 ? load_i16(p) : load_i8(p));
}
/// The bits of a parameter and its remainder.
uint param_bits(const Arrays r, int i) {
  const uint word = load_word(r.param, i);
  return r.remainder.data == 0ul ? word : word | load_word(r.remainder, i) << 16;
}
void store_param(const ApplyArgs a, const Arrays r, int i, float x) {
  if (r.remainder.data != 0ul) {
    uint remainder;
    store_word(r.param, i, divide_master(r.param.dtype, a.step.master, x, remainder));
    store_word(r.remainder, i, r.remainder.bytes == 2 ? remainder & 0xffffu : remainder & 0xffu);
  } else if (is_stochastic(a.step.master)) {
    const uint random = random_bits(a.step.seed, r.first + i, r.step, true) & 0xffffu;
    store_word(r.param, i, round_param(r.param.dtype, x, random));
  } else {
    store_value(r.param, i, x);
  }
}

float load_state(const Arrays r, int s, int i) {
  const uint code = load_word(r.state[s], i);
  const uint scale = is_grouped(r.state[s].dtype) ? load_word(r.scales[s], i / kStateGroup) : 0u;
  return decode_slot(r.state[s].dtype, code, scale);
}
/// Called by all invocations, whose elements `i` follow each other; `exists` if it has one.
void store_states(const ApplyArgs a, const Arrays r, int slots, int i, bool exists, const float state[kMaxStates]) {
  const int group = THREAD / kStateGroup;
  barrier();  // all have read their scales, and the largest magnitudes before
  if (THREAD % kStateGroup == 0) {
    for (int s = 0; s < kMaxStates; ++s) {
      group_largest[s][group] = 0;
      group_smallness[s][group] = 0;
    }
  }
  barrier();
  bool is_random = false;
  if (exists) {
    for (int s = 0; s < slots; ++s) {
      is_random = is_random || r.is_random[s];
      if (!is_grouped(r.state[s].dtype)) continue;
      const int magnitude = magnitude_of_slot(r.state[s].dtype, state[s]);
      atomicMax(group_largest[s][group], magnitude);
      atomicMax(group_smallness[s][group], smallness_of_slot(magnitude));
    }
  }
  barrier();
  if (!exists) return;
  const uint random = is_random ? random_bits(a.step.seed, r.first + i, r.step, false) : 0u;
  for (int s = 0; s < slots; ++s) {
    const int dtype = r.state[s].dtype;
    const uint scale = scale_of_slot(dtype, uint(group_largest[s][group]), uint(group_smallness[s][group]));
    if (is_grouped(dtype) && i % kStateGroup == 0) store_word(r.scales[s], i / kStateGroup, scale);
    store_word(r.state[s], i, encode_slot(dtype, state[s], scale, random, r.is_random[s]));
  }
}
#else
REAL load_param(const ApplyArgs a, const Arrays r, int i) { return widen_value(r.param.dtype, load_stored(r.param, i)); }
uint64_t param_bits(const Arrays r, int i) { return load_stored(r.param, i); }
void store_param(const ApplyArgs a, const Arrays r, int i, REAL x) { store_value(r.param, i, x); }
REAL load_state(const Arrays r, int s, int i) {
  const uint64_t p = r.state[s].data + uint64_t(i * kBytes);
  return kIsWide ? REAL(load_f64(p)) : REAL(load_f32(p));
}
void store_states(const ApplyArgs a, const Arrays r, int slots, int i, bool exists, const REAL state[kMaxStates]) {
  if (!exists) return;
  for (int s = 0; s < slots; ++s) {
    const uint64_t p = r.state[s].data + uint64_t(i * kBytes);
    if (kIsWide) {
      store_f64(p, double(state[s]));
    } else {
      store_f32(p, float(state[s]));
    }
  }
}
#endif
