// SPDX-License-Identifier: Apache-2.0
// Norms of each tensor and of all together, from the results of a check.
#include "workgroup.glsl"
#include "join.glsl"

void main() {
  const NormArgs a = load_NormArgs(push.args);
  // Without the norms of tensors there is one item of work, the list, which is the last.
  const int64_t first = a.out_tensor_norms != 0ul ? 0l : a.plan.size;
  const int64_t last = a.out_norm != 0ul ? a.plan.size + 1l : a.plan.size;
  for (int64_t t = first + WORKGROUP; t < last; t += WORKGROUPS) {
    const bool is_list = t == a.plan.size;
    const int64_t begin = is_list ? 0l : first_chunk_of(a.plan, t);
    const int64_t end = is_list ? a.plan.chunk_count : end_chunk(a.plan, t);
    const double x =
        a.amax ? join_amax(a.results, begin, end)
               : norm_of(join_sums(a.results, begin, end, 0), scale_or_one(is_list ? 0ul : a.inv_scale));
    if (THREAD == 0) store_f64(is_list ? a.out_norm : a.out_tensor_norms + uint64_t(t) * 8ul, x);
  }
}
