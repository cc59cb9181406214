// SPDX-License-Identifier: Apache-2.0
// The sweep that moves the parameters, in reverse order of check: an invocation takes an element. The last workgroup
// counts the step and updates the scaler.
#include "step.glsl"

void sweep_part(const ApplyArgs a, const StepInput scalars, const Place place) {
  Arrays r;
  const int slots = last_slots(kSpecial);
  const int read_slots = states_of(kSpecial);
  if (!find_arrays(a, place, read_slots, r)) return;
  if (scalars.skip) {
    for (int i = THREAD; i < place.n; i += kThreads) store_stored(r.grad, i, 0ul);
    return;
  }
  const REAL ratio = has_ratio(kSpecial) ? REAL(load_f64(a.step.ratios + uint64_t(place.tensor) * 8ul)) : REAL(1.0);
  uint unchanged = 0u;
  for (int begin = 0; begin < place.n; begin += kThreads) {
    const int i = begin + THREAD;
    const bool exists = i < place.n;
    REAL state[kMaxStates];
    for (int s = 0; s < kMaxStates; ++s) state[s] = REAL(0.0);
    REAL param = REAL(0.0);
    if (exists) {
      param = load_param(a, r, i);
      for (int s = 0; s < read_slots; ++s) state[s] = load_state(r, s, i);
      REAL g = REAL(0.0);
      if (reads_gradients_last(kSpecial)) g = take_gradient(a, scalars, r.grad, i, true);
      OF(move)(kSpecial, param, state, g, ratio, shared_coefficients);
    }
    if (slots > 0 && moves_state(a)) store_states(a, r, slots, i, exists, state);
    if (!exists) continue;
    if (a.step.count_unchanged) {
      const uint64_t before = uint64_t(param_bits(r, i));
      store_param(a, r, i, param);
      if (uint64_t(param_bits(r, i)) == before) ++unchanged;
    } else {
      store_param(a, r, i, param);
    }
    if (r.copy.data != 0ul) store_value(r.copy, i, param);
    if (r.ema.data != 0ul) {
      // Averages the parameters as they have been rounded.
      const uint64_t p = r.ema.data + uint64_t(i * kBytes);
      const REAL old = kIsWide ? REAL(load_f64(p)) : REAL(load_f32(p));
      const REAL now = OF(average)(old, load_param(a, r, i), shared_coefficients.ema_weight);
      if (kIsWide) {
        store_f64(p, double(now));
      } else {
        store_f32(p, float(now));
      }
    }
  }
  if (unchanged > 0u) add_to(unchanged_count(a), unchanged);
}

void main() {
  const ApplyArgs a = load_ApplyArgs(push.args);
  const StepInput scalars = read_scalars(a);
  const int split = a.grads.split;
  const int64_t first = a.first_chunk << split;
  if (!scalars.skip || a.step.zero_grads) {
    for (int64_t part = (a.last_chunk << split) - 1l - WORKGROUP; part >= first; part -= WORKGROUPS) {
      const Place place = place_of_part(a.grads, part, split);
      if (place.n > 0) sweep_part(a, scalars, place);
    }
  }
  if (a.finish && is_last_workgroup(a.tickets + 4ul) && THREAD == 0) finish_step(a, scalars.skip);
}
