// SPDX-License-Identifier: Apache-2.0
// The ratio of every tensor, by a workgroup each.
#include "workgroup.glsl"
#include "join.glsl"

void main() {
  ApplyArgs a = load_ApplyArgs(push.args);
  a.step.variant = kSpecial;  // so that a driver compiles the one formula
  if (read_scalars(a).skip) return;
  for (int64_t t = WORKGROUP; t < a.grads.size; t += WORKGROUPS) {
    const int64_t begin = first_chunk_of(a.grads, t);
    const int64_t end = end_chunk(a.grads, t);
    const double param = join_sums(a.results, begin, end, 0);
    const double direction = join_sums(a.results, begin, end, 1);
    if (THREAD == 0) store_ratio(a, t, param, direction);
  }
}
