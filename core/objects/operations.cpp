// SPDX-License-Identifier: Apache-2.0
// Stateless operations: validate, plan in the context's scratch memory, call the backend.
#include "core/objects/operations.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/decimal.h"
#include "core/base/error.h"
#include "core/device/validate.h"
#include "core/objects/overlap_check.h"
#include "core/objects/scaler_options.h"
#include "core/objects/stored_state.h"

namespace gsc::ops {
namespace {

void validate_one(Context &context, const gsc_tensor *tensors, int64_t count, const Argument &what,
                  StateDtypes state = StateDtypes::kRefused) {
  validate_tensors(tensors, count, what, state);
  validate_memory(context.backend(), tensors, count, what);
}

/// Requires device scalars outside of the tensors: a GPU would read and write both at once.
template <typename T>
void require_apart(const T *scalars, int64_t scalar_count, const Argument &name, const gsc_tensor *tensors,
                   int64_t count, const Argument &what) {
  const Memory memory(scalars, scalar_count * int64_t{sizeof(T)});
  for (int64_t i = 0; scalars != nullptr && i < count; ++i) {
    if (!TensorMemory(tensors[i]).overlaps(memory)) continue;
    refuse(name, "overlaps %s in memory", what.tensor(i).text().c_str());
  }
}

/// The same for a scalar and others, at least one of which is written.
template <typename T, typename U>
void require_apart(const T *scalar, const Argument &name, const U *others, const char *other_name, int64_t count = 1) {
  if (others == nullptr) return;
  if (Memory(scalar, sizeof(T)).overlaps(Memory(others, count * int64_t{sizeof(U)}))) {
    refuse(name, "overlaps %s in memory", other_name);
  }
}

template <typename F>
void with_plan(Context &context, const gsc_tensor *tensors, int64_t count, const F &f) {
  context.with_scratch_plans([&](Plan &plan, Plan &) {
    plan.build(tensors, count, context.backend().wanted_tasks());
    f(plan);
  });
}

void elementwise(Context &context, Elementwise op, const gsc_tensor *src, const Argument &src_name,
                 const gsc_tensor *dst, const Argument &dst_name, int64_t count, double a, double b,
                 const float *factor, gsc_stream stream) {
  validate_one(context, src, count, src_name);
  validate_one(context, dst, count, dst_name);
  for (int64_t i = 0; i < count; ++i) {
    if (src[i].count != dst[i].count) {
      refuse(src_name.tensor(i), "has %lld elements, but %s has %lld", static_cast<long long>(src[i].count),
             dst_name.tensor(i).text().c_str(), static_cast<long long>(dst[i].count));
    }
    if (src[i].count > 0 && src[i].data == dst[i].data && src[i].dtype != dst[i].dtype) {
      refuse(src_name.tensor(i), "and %s are the same buffer, but of dtypes %s and %s",
             dst_name.tensor(i).text().c_str(), dtype_name(src[i].dtype), dtype_name(dst[i].dtype));
    }
    if (src[i].data != dst[i].data && TensorMemory(src[i]).overlaps(TensorMemory(dst[i]))) {
      refuse(src_name.tensor(i), "and %s overlap without being the same buffer", dst_name.tensor(i).text().c_str());
    }
  }
  require_apart(factor, 1, "factor", dst, count, dst_name);
  context.with_scratch_plans([&](Plan &from, Plan &to) {
    from.build(src, count, context.backend().wanted_tasks());
    to.build(dst, count, context.backend().wanted_tasks());
    context.backend().elementwise({op, &from, &to, a, b, factor}, stream);
  });
}

}  // namespace

void unscale_check(Context &context, const gsc_tensor *tensors, int64_t count, float *found_inf, const float *inv_scale,
                   gsc_stream stream) {
  validate_one(context, tensors, count, "tensors");
  require_apart(found_inf, 1, "found_inf", tensors, count, "tensors");
  require_apart(inv_scale, 1, "inv_scale", tensors, count, "tensors");
  require_apart(found_inf, "found_inf", inv_scale, "inv_scale");
  with_plan(context, tensors, count, [&](Plan &plan) {
    CheckJob job{};
    job.plan = &plan;
    job.found_inf = found_inf;
    job.inv_scale = inv_scale;
    job.last_chunk = plan.chunk_count();
    job.unscale = true;
    context.backend().check(job, stream);
  });
}

void update_scale(Context &context, float *scale, int32_t *growth_tracker, const float *found_inf, double growth_factor,
                  double backoff_factor, int32_t growth_interval, gsc_stream stream) {
  validate_growth_factor(growth_factor, "growth_factor");
  validate_backoff_factor(backoff_factor, "backoff_factor");
  validate_growth_interval(growth_interval, "growth_interval");
  gsc_scaler_options options = default_scaler_options();
  options.growth_factor = growth_factor;
  options.backoff_factor = backoff_factor;
  options.growth_interval = growth_interval;
  const Policy policy = make_policy(options);
  require_moving_factor(policy, 1.0F, growth_factor, "growth_factor");
  require_moving_factor(policy, 1.0F, backoff_factor, "backoff_factor");
  require_apart(scale, "scale", growth_tracker, "growth_tracker");
  require_apart(scale, "scale", found_inf, "found_inf");
  require_apart(growth_tracker, "growth_tracker", found_inf, "found_inf");
  context.backend().record({.kind = RecordJob::Kind::kUpdateScale,
                            .policy = policy,
                            .scale_word = scale,
                            .tracker_word = growth_tracker,
                            .found_inf = found_inf},
                           stream);
}

void scale(Context &context, const gsc_tensor *src, const gsc_tensor *dst, int64_t count, const float *factor,
           gsc_stream stream) {
  elementwise(context, Elementwise::kScale, src, "src", dst, "dst", count, 0.0, 0.0, factor, stream);
}

void axpby(Context &context, double a, const gsc_tensor *x, double b, const gsc_tensor *y, int64_t count,
           gsc_stream stream) {
  elementwise(context, Elementwise::kAxpby, x, "x", y, "y", count, a, b, nullptr, stream);
}

void cast(Context &context, const gsc_tensor *src, const gsc_tensor *dst, int64_t count, gsc_stream stream) {
  elementwise(context, Elementwise::kCast, src, "src", dst, "dst", count, 0.0, 0.0, nullptr, stream);
}

namespace {

bool is_convertible(int32_t from, int32_t to) {
  if (is_remainder(from) || is_remainder(to)) {
    return (is_remainder(from) || from == GSC_FP32) && (is_remainder(to) || to == GSC_FP32);
  }
  const auto is_in = [&](Slot holds) { return is_convertible_slot(from, holds) && is_convertible_slot(to, holds); };
  return is_in(Slot::kMoment) || is_in(Slot::kSecondMoment);
}

void validate_conversion(const gsc_tensor &src, const gsc_tensor *weights, const gsc_tensor &dst, int64_t i) {
  if (src.count != dst.count) {
    refuse(Argument("dst").tensor(i), "has %lld elements, but src[%lld] has %lld", static_cast<long long>(dst.count),
           static_cast<long long>(i), static_cast<long long>(src.count));
  }
  if (!is_convertible(src.dtype, dst.dtype)) {
    refuse(Argument("dst").tensor(i), "is %s, into which %s is not converted", dtype_name(dst.dtype),
           dtype_name(src.dtype));
  }
  const TensorMemory from(src), to(dst);
  if (from.overlaps_itself()) refuse(Argument("src").tensor(i), "overlaps its own scales in memory");
  if (to.overlaps_itself()) refuse(Argument("dst").tensor(i), "overlaps its own scales in memory");
  if (from.overlaps(to)) {
    refuse(Argument("src").tensor(i), "overlaps dst[%lld] in memory", static_cast<long long>(i));
  }
  if (weights != nullptr && TensorMemory(weights[i]).overlaps(to)) {
    refuse(Argument("weights").tensor(i), "overlaps dst[%lld] in memory", static_cast<long long>(i));
  }
  if (is_remainder(src.dtype) == is_remainder(dst.dtype)) return;
  if (weights == nullptr) refuse("weights", "is NULL, but masters need their weights");
  if (weights[i].count != src.count || (weights[i].dtype != GSC_FP16 && weights[i].dtype != GSC_BF16)) {
    refuse(Argument("weights").tensor(i), "has %lld elements of dtype %s; it must have %lld of fp16 or bf16",
           static_cast<long long>(weights[i].count), dtype_name(weights[i].dtype), static_cast<long long>(src.count));
  }
}

}  // namespace

void convert_state(Context &context, const gsc_tensor *src, const gsc_tensor *weights, const gsc_tensor *dst,
                   int64_t count, gsc_stream stream) {
  validate_one(context, src, count, "src", StateDtypes::kConverted);
  validate_one(context, dst, count, "dst", StateDtypes::kConverted);
  if (weights != nullptr) validate_one(context, weights, count, "weights");
  for (int64_t i = 0; i < count; ++i) validate_conversion(src[i], weights, dst[i], i);
  Backend &backend = context.backend();
  for (int64_t i = 0; i < count; ++i) {
    const gsc_tensor &from = src[i], &to = dst[i];
    if (from.dtype != to.dtype) {
      backend.convert(
          {array_of(from), weights != nullptr ? array_of(weights[i]) : StateArray{}, array_of(to), to.count}, stream);
    } else if (to.count > 0) {
      backend.copy_from(to.data, backend, from.data, to.count * dtype_bytes(to.dtype), stream);
      const gsc_tensor from_scales = scales_of(from), to_scales = scales_of(to);
      const int64_t bytes = to_scales.count * dtype_bytes(to_scales.dtype);
      if (bytes > 0) backend.copy_from(to_scales.data, backend, from_scales.data, bytes, stream);
    }
  }
}

void norm(Context &context, const gsc_tensor *tensors, int64_t count, int32_t norm_type, double *out_norm,
          double *out_tensor_norms, gsc_stream stream) {
  if (norm_type != GSC_NORM_L2 && norm_type != GSC_NORM_INF) {
    refuse_value("norm_type", norm_type, "GSC_NORM_L2 or GSC_NORM_INF");
  }
  validate_one(context, tensors, count, "tensors");
  require_apart(out_norm, 1, "out_norm", tensors, count, "tensors");
  require_apart(out_tensor_norms, count, "out_tensor_norms", tensors, count, "tensors");
  require_apart(out_norm, "out_norm", out_tensor_norms, "out_tensor_norms", count);
  with_plan(context, tensors, count, [&](Plan &plan) {
    plan.need_partials();
    context.backend().norm({&plan, norm_type == GSC_NORM_INF, out_norm, out_tensor_norms}, stream);
  });
}

Recommendation recommend_scale(const int64_t *histogram, int64_t bins, float current_scale, int32_t dtype) {
  if (bins != GSC_EXPONENT_BINS) {
    refuse_value("bins", bins, "GSC_EXPONENT_BINS");
  }
  if (!std::isfinite(current_scale) || current_scale <= 0.0F) {
    refuse_value("current_scale", current_scale, "finite and > 0");
  }
  const auto is_narrow = [](int32_t d) { return is_element_dtype(d) && !is_wide(d); };
  if (!is_narrow(dtype)) {
    refuse("dtype", "is %d; it must be %s", dtype, DtypeChoices(is_narrow).c_str());
  }
  const int largest = with_dtype(dtype, [](auto d) { return decltype(d)::kLargestExponent; });
  const int smallest = with_dtype(dtype, [](auto d) { return decltype(d)::kSmallestExponent; });
  double total = 0.0;  // the sum of counts may be beyond int64_t
  int top = -1;
  for (int b = 0; b < GSC_EXPONENT_BINS; ++b) {
    if (histogram[b] < 0) {
      refuse_value(Argument("histogram").at(b), histogram[b], ">= 0");
    }
    total += static_cast<double>(histogram[b]);
    if (histogram[b] > 0) top = b;
  }
  if (total == 0.0) return {current_scale, 0.0};

  // The exponents are those of gradients times current_scale. The largest should be two binades below `largest`.
  const int current = std::ilogb(current_scale);
  const int wanted = largest - 2 - (top + GSC_EXPONENT_MIN) + current;
  const int exponent = wanted < -126 ? -126 : (wanted > 127 ? 127 : wanted);
  double flushed = 0.0;
  for (int b = 0; b < GSC_EXPONENT_BINS; ++b) {
    if (b + GSC_EXPONENT_MIN + exponent - current < smallest) flushed += static_cast<double>(histogram[b]);
  }
  return {std::ldexp(1.0F, exponent), flushed / total};
}

}  // namespace gsc::ops
