// SPDX-License-Identifier: Apache-2.0
// The first sweep of a formula that needs norms: the moments and, per chunk, the sums of squares of parameters and
// directions, in the order of core/rules/reduction.h. An invocation has a column of a tile.
#include "step.glsl"

const int kColumns = kRowBytes / kBytes;
const int kWidth = kGroupBytes / kBytes;
const int kTile = kTileBytes / kBytes;

shared double columns[2][kMostThreads];
shared double groups[2][kMostThreads / 2];

void sweep_chunk(const ApplyArgs a, const StepInput scalars, const Place place, uint64_t to) {
  Arrays r;
  const int slots = first_slots(kSpecial);
  if (!find_arrays(a, place, slots, r)) return;
  const int tiles = (place.n + kTile - 1) / kTile;
  const int per_round = max(kThreads / kColumns, 1);  // tiles
  double param_sum = 0.0lf;
  double direction_sum = 0.0lf;
  for (int tile = 0; tile < tiles; tile += per_round) {
    for (int from = 0; from < per_round * kColumns; from += kThreads) {
      const int own = from + THREAD;
      const bool takes_part = own < per_round * kColumns;  // not in small tiles of large workgroups
      const int column = own % kColumns;
      double param_column = 0.0lf;
      double direction_column = 0.0lf;
      for (int row = 0; row < kRows; ++row) {
        const int i = (tile + own / kColumns) * kTile + row * kColumns + column;
        const bool exists = takes_part && i < place.n;
        REAL state[kMaxStates];
        for (int s = 0; s < kMaxStates; ++s) state[s] = REAL(0.0);
        if (exists) {
          const REAL param = load_param(a, r, i);
          for (int s = 0; s < slots; ++s) state[s] = load_state(r, s, i);
          const REAL g = take_gradient(a, scalars, r.grad, i, !a.gradients_last);
          const double direction = OF(direction)(kSpecial, param, state, g, shared_coefficients);
          param_column += double(param) * double(param);
          direction_column += direction * direction;
        }
        if (slots > 0) store_states(a, r, slots, i, exists, state);
      }
      if (takes_part) {
        columns[0][own] = param_column;
        columns[1][own] = direction_column;
      }
    }
    barrier();
    const int count = per_round * kGroups;  // of groups
    for (int g = THREAD; g < count; g += kThreads) {
      for (int which = 0; which < 2; ++which) {
        double sum = columns[which][g * kWidth];
        for (int k = 1; k < kWidth; ++k) sum += columns[which][g * kWidth + k];
        groups[which][g] = sum;
      }
    }
    barrier();
    for (int width = kGroups / 2; width > 0; width /= 2) {
      for (int g = THREAD; g < count; g += kThreads) {
        if (g % kGroups < width) {
          groups[0][g] += groups[0][g + width];
          groups[1][g] += groups[1][g + width];
        }
      }
      barrier();
    }
    for (int t = 0; t < per_round && tile + t < tiles; ++t) {
      param_sum += groups[0][t * kGroups];
      direction_sum += groups[1][t * kGroups];
    }
  }
  if (THREAD == 0) {
    store_f64(to, param_sum);
    store_f64(to + 8ul, direction_sum);
  }
}

void main() {
  const ApplyArgs a = load_ApplyArgs(push.args);
  const StepInput scalars = read_scalars(a);
  if (scalars.skip) return;
  for (int64_t chunk = a.last_chunk - 1l - WORKGROUP; chunk >= a.first_chunk; chunk -= WORKGROUPS) {
    const Place place = place_of_part(a.grads, chunk, 0);
    if (place.n > 0) sweep_chunk(a, scalars, place, a.results + uint64_t(chunk) * kResultBytes);
  }
}
