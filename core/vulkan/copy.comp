// SPDX-License-Identifier: Apache-2.0
// Bytes from one place to another: an invocation takes 4 at a time where both are aligned.
#include "workgroup.glsl"

void main() {
  const CopyArgs a = load_CopyArgs(push.args);
  const bool is_aligned = ((a.from | a.to | uint64_t(a.bytes)) & 3ul) == 0ul;
  const int size = is_aligned ? 4 : 1;
  const int64_t step_ = WORKGROUPS * kThreads * size;
  for (int64_t i = (WORKGROUP * kThreads + THREAD) * size; i < a.bytes; i += step_) {
    if (is_aligned) {
      store_u32(a.to + uint64_t(i), load_u32(a.from + uint64_t(i)));
    } else {
      store_u8(a.to + uint64_t(i), load_u8(a.from + uint64_t(i)));
    }
  }
}
