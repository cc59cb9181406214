// SPDX-License-Identifier: Apache-2.0
// State from one format to another: an invocation takes an element, 32 of them a group with its scale.
#include "workgroup.glsl"

shared int group_largest[kMostThreads / kStateGroup];
shared int group_smallness[kMostThreads / kStateGroup];

void main() {
  const StateConversion job = load_StateConversion(push.args);
  const int group = THREAD / kStateGroup;
  for (int64_t begin = WORKGROUP * kThreads; begin < job.count; begin += WORKGROUPS * kThreads) {
    const int64_t i = begin + THREAD;
    const bool exists = i < job.count;
    if (has_remainders(job)) {
      if (exists) convert_remainder(job, i);
      continue;
    }
    barrier();
    if (THREAD % kStateGroup == 0) {
      group_largest[group] = 0;
      group_smallness[group] = 0;
    }
    barrier();
    const float value = exists ? decode_state(job.src, i) : 0.0f;
    const int magnitude = scaled_magnitude(job.dst.dtype, value);
    atomicMax(group_largest[group], magnitude);
    atomicMax(group_smallness[group], smallness_of_slot(magnitude));
    barrier();
    if (exists) encode_state(job.dst, i, value, group_largest[group], group_smallness[group]);
  }
}
