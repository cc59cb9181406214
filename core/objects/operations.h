// SPDX-License-Identifier: Apache-2.0
// The stateless operations, and the recommendation of a scale from a histogram.
#pragma once

#include <cstdint>

#include "core/objects/context.h"

namespace gsc::ops {

void unscale_check(Context &context, const gsc_tensor *tensors, int64_t count, float *found_inf, const float *inv_scale,
                   gsc_stream stream);
void update_scale(Context &context, float *scale, int32_t *growth_tracker, const float *found_inf, double growth_factor,
                  double backoff_factor, int32_t growth_interval, gsc_stream stream);
void scale(Context &context, const gsc_tensor *src, const gsc_tensor *dst, int64_t count, const float *factor,
           gsc_stream stream);
void axpby(Context &context, double a, const gsc_tensor *x, double b, const gsc_tensor *y, int64_t count,
           gsc_stream stream);
void cast(Context &context, const gsc_tensor *src, const gsc_tensor *dst, int64_t count, gsc_stream stream);
void convert_state(Context &context, const gsc_tensor *src, const gsc_tensor *weights, const gsc_tensor *dst,
                   int64_t count, gsc_stream stream);
void norm(Context &context, const gsc_tensor *tensors, int64_t count, int32_t norm_type, double *out_norm,
          double *out_tensor_norms, gsc_stream stream);

/// See gsc_histogram_recommend_scale.
struct Recommendation {
  float scale;
  double flushed;
};
Recommendation recommend_scale(const int64_t *histogram, int64_t bins, float current_scale, int32_t dtype);

}  // namespace gsc::ops
