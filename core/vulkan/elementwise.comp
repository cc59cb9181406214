// SPDX-License-Identifier: Apache-2.0
// Casting, scaling, accumulating, clamping and filling: an invocation takes an element.
#include "workgroup.glsl"
#include "span.glsl"

void main() {
  const ElementwiseArgs a = load_ElementwiseArgs(push.args);
  const ElementwiseRule rule = resolve_rule(a);
  if (rule.nothing) return;
  const bool with_src = reads_src(rule);
  const bool with_dst = reads_dst(rule);
  const int64_t parts = a.dst.chunk_count << a.dst.split;
  for (int64_t part = WORKGROUP; part < parts; part += WORKGROUPS) {
    const Place place = place_of_part(a.dst, part, a.dst.split);
    if (place.n == 0) continue;
    const Span dst = span_of(a.dst.tensors, place.tensor, place.offset);
    const Span src = with_src ? span_of(a.src, place.tensor, place.offset) : dst;
    const bool in_double = !with_src || is_wide(src.dtype) || is_wide(dst.dtype);
    for (int i = THREAD; i < place.n; i += kThreads) {
      const uint64_t x = with_src ? load_stored(src, i) : 0ul;
      const uint64_t y = with_dst ? load_stored(dst, i) : 0ul;
      if (is_copy(rule.op, src.dtype, dst.dtype)) {
        store_stored(dst, i, x);
      } else if (in_double) {
        const double result = compute_double(rule, with_src ? widen_double(src.dtype, x) : 0.0lf,
                                             with_dst ? widen_double(dst.dtype, y) : 0.0lf);
        store_stored(dst, i, narrow_double(dst.dtype, result));
      } else {
        const float result = compute_float(rule, widen_float(src.dtype, uint(x)), widen_float(dst.dtype, uint(y)));
        store_word(dst, i, narrow_float(dst.dtype, result));
      }
    }
  }
}
