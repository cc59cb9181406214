// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_CPP_OPS_HPP
#define GRADSCALER_CPP_OPS_HPP
//
// Stateless operations, for callers that keep the scaler's state themselves: the gsc_ops functions over spans.
// Contracts are those of gradscaler.h. Include <gradscaler/gradscaler.hpp>.
//
#include <cstdint>
#include <gradscaler/cpp/tensor_list.hpp>

namespace gradscaler {

/// found_inf, inv_scale and so on are device scalars: addresses of single numbers in device memory.
namespace ops {

inline void unscale_check(const Context &context, Tensors tensors, float *found_inf, const float *inv_scale,
                          gsc_stream stream = nullptr) {
  detail::check(gsc_ops_unscale_check(context.get(), tensors.data(), tensors.count(), found_inf, inv_scale, stream));
}
inline void update_scale(const Context &context, float *scale, int32_t *growth_tracker, const float *found_inf,
                         double growth_factor, double backoff_factor, int32_t growth_interval,
                         gsc_stream stream = nullptr) {
  detail::check(gsc_ops_update_scale(context.get(), scale, growth_tracker, found_inf, growth_factor, backoff_factor,
                                     growth_interval, stream));
}
inline void scale(const Context &context, Tensors src, Tensors dst, const float *factor, gsc_stream stream = nullptr) {
  const int64_t count = detail::same_count("src", src, "dst", dst);
  detail::check(gsc_ops_scale(context.get(), src.data(), dst.data(), count, factor, stream));
}
inline void axpby(const Context &context, double a, Tensors x, double b, Tensors y, gsc_stream stream = nullptr) {
  const int64_t count = detail::same_count("x", x, "y", y);
  detail::check(gsc_ops_axpby(context.get(), a, x.data(), b, y.data(), count, stream));
}
inline void cast(const Context &context, Tensors src, Tensors dst, gsc_stream stream = nullptr) {
  const int64_t count = detail::same_count("src", src, "dst", dst);
  detail::check(gsc_ops_cast(context.get(), src.data(), dst.data(), count, stream));
}
/// `weights`: empty unless masters are converted to remainders or back.
inline void convert_state(const Context &context, Tensors src, Tensors weights, Tensors dst,
                          gsc_stream stream = nullptr) {
  const int64_t count = detail::same_count("src", src, "dst", dst);
  if (weights.count() > 0) detail::same_count("src", src, "weights", weights);
  detail::check(gsc_ops_convert_state(context.get(), src.data(), weights.count() > 0 ? weights.data() : nullptr,
                                      dst.data(), count, stream));
}
/// `tensor_norms`: one number per tensor, in device memory, or nullptr.
inline void norm(const Context &context, Tensors tensors, Norm norm_type, double *out_norm,
                 double *tensor_norms = nullptr, gsc_stream stream = nullptr) {
  detail::check(gsc_ops_norm(context.get(), tensors.data(), tensors.count(), static_cast<int32_t>(norm_type), out_norm,
                             tensor_norms, stream));
}
}  // namespace ops

}  // namespace gradscaler

#endif  // GRADSCALER_CPP_OPS_HPP
