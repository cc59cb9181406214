// SPDX-License-Identifier: Apache-2.0
// Entry points of the stateless operations.
#include "capi/guard.h"
#include "core/objects/operations.h"

using namespace gsc;
using namespace gsc::capi;

namespace {

Ref<Context> context_of(gsc_context *context) { return shared<Context>(context, "context"); }

}  // namespace

gsc_status gsc_ops_unscale_check(gsc_context *context, const gsc_tensor *tensors, int64_t count, float *found_inf,
                                 const float *inv_scale, gsc_stream stream) {
  return guard(__func__, [&] {
    ops::unscale_check(*context_of(context), tensors, count, require_aligned(found_inf, "found_inf"),
                       require_aligned(inv_scale, "inv_scale"), stream);
  });
}

gsc_status gsc_ops_update_scale(gsc_context *context, float *scale, int32_t *growth_tracker, const float *found_inf,
                                double growth_factor, double backoff_factor, int32_t growth_interval,
                                gsc_stream stream) {
  return guard(__func__, [&] {
    ops::update_scale(*context_of(context), require_aligned(scale, "scale"),
                      require_aligned(growth_tracker, "growth_tracker"), require_aligned(found_inf, "found_inf"),
                      growth_factor, backoff_factor, growth_interval, stream);
  });
}

gsc_status gsc_ops_scale(gsc_context *context, const gsc_tensor *src, const gsc_tensor *dst, int64_t count,
                         const float *factor, gsc_stream stream) {
  return guard(__func__,
               [&] { ops::scale(*context_of(context), src, dst, count, require_aligned(factor, "factor"), stream); });
}

gsc_status gsc_ops_axpby(gsc_context *context, double a, const gsc_tensor *x, double b, const gsc_tensor *y,
                         int64_t count, gsc_stream stream) {
  return guard(__func__, [&] { ops::axpby(*context_of(context), a, x, b, y, count, stream); });
}

gsc_status gsc_ops_cast(gsc_context *context, const gsc_tensor *src, const gsc_tensor *dst, int64_t count,
                        gsc_stream stream) {
  return guard(__func__, [&] { ops::cast(*context_of(context), src, dst, count, stream); });
}

gsc_status gsc_ops_convert_state(gsc_context *context, const gsc_tensor *src, const gsc_tensor *weights,
                                 const gsc_tensor *dst, int64_t count, gsc_stream stream) {
  return guard(__func__, [&] { ops::convert_state(*context_of(context), src, weights, dst, count, stream); });
}

gsc_status gsc_ops_norm(gsc_context *context, const gsc_tensor *tensors, int64_t count, int32_t norm_type,
                        double *out_norm, double *out_tensor_norms, gsc_stream stream) {
  return guard(__func__, [&] {
    ops::norm(*context_of(context), tensors, count, norm_type, require_aligned(out_norm, "out_norm"),
              aligned(out_tensor_norms, "out_tensor_norms"), stream);
  });
}
