// SPDX-License-Identifier: Apache-2.0
//
// XLA FFI handlers over the C ABI for the CPU: unscale and check, scale update, AdamW. Results that XLA aliases with
// their operands are worked on in place; where it gave them memory of their own they are copied first. Nothing is kept
// between calls but one context, so that handlers may run at once. The meaning of operands is fixed by jax.py.
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gradscaler/gradscaler.h"
#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using Word = ffi::BufferR0<ffi::F32>;
using Counter = ffi::BufferR0<ffi::S32>;

ffi::Error failure(gsc_status status) {
  const ffi::ErrorCode code =
      status == GSC_ERROR_INVALID_ARGUMENT ? ffi::ErrorCode::kInvalidArgument : ffi::ErrorCode::kInternal;
  return ffi::Error(code, gsc_last_error_message());
}

#define GSC_FFI_CHECK(call)                         \
  do {                                              \
    const gsc_status status_ = (call);              \
    if (status_ != GSC_OK) return failure(status_); \
  } while (false)

// The CPU with all its threads, opened by the first call and kept: a library in use is not unloaded.
gsc_context *cpu() {
  static gsc_context *const context = [] {
    gsc_context *opened = nullptr;
    return gsc_context_create(nullptr, &opened) == GSC_OK ? opened : nullptr;
  }();
  return context;
}

int32_t dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F16:
      return GSC_FP16;
    case ffi::DataType::BF16:
      return GSC_BF16;
    case ffi::DataType::F32:
      return GSC_FP32;
    case ffi::DataType::F64:
      return GSC_FP64;
    default:
      return 0;
  }
}

gsc_tensor tensor_of(const ffi::AnyBuffer &buffer) {
  return {buffer.untyped_data(), static_cast<int64_t>(buffer.element_count()), dtype_of(buffer.element_type()), 0};
}

// Result `to` of an operand that XLA may or may not have aliased with it.
gsc_tensor in_place(const ffi::AnyBuffer &from, ffi::AnyBuffer &to) {
  if (to.untyped_data() != from.untyped_data()) std::memcpy(to.untyped_data(), from.untyped_data(), to.size_bytes());
  return tensor_of(to);
}

struct Destroy {
  void operator()(gsc_tensor_list *list) const { gsc_tensor_list_destroy(list); }
  void operator()(gsc_optimizer *optimizer) const { gsc_optimizer_destroy(optimizer); }
};
using List = std::unique_ptr<gsc_tensor_list, Destroy>;

gsc_status make_list(const std::vector<gsc_tensor> &tensors, List *out) {
  gsc_tensor_list *list = nullptr;
  const gsc_status status =
      gsc_tensor_list_create(cpu(), tensors.data(), static_cast<int64_t>(tensors.size()), nullptr, &list);
  out->reset(list);
  return status;
}

// inv_scale, found_inf, tensors... -> found_inf, tensors...
ffi::Error unscale_check(Word inv_scale, Word found_inf, ffi::RemainingArgs args, ffi::Result<Word> out_found_inf,
                         ffi::RemainingRets rets) {
  if (args.size() != rets.size()) return ffi::Error::InvalidArgument("as many results as tensors are needed");
  std::vector<gsc_tensor> tensors;
  tensors.reserve(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    auto from = args.get<ffi::AnyBuffer>(i);
    auto to = rets.get<ffi::AnyBuffer>(i);
    if (!from || !to) return ffi::Error::InvalidArgument("an operand is not an array");
    tensors.push_back(in_place(*from, **to));
  }
  // The word may be an operand of other calls too, and the library only ever sets it.
  *out_found_inf->typed_data() = *found_inf.typed_data();
  GSC_FFI_CHECK(gsc_ops_unscale_check(cpu(), tensors.data(), static_cast<int64_t>(tensors.size()),
                                      out_found_inf->typed_data(), inv_scale.typed_data(), nullptr));
  return ffi::Error::Success();
}

// scale, growth_tracker, found_inf -> scale, growth_tracker
ffi::Error update_scale(Word scale, Counter tracker, Word found_inf, ffi::Result<Word> out_scale,
                        ffi::Result<Counter> out_tracker, double growth_factor, double backoff_factor,
                        int32_t growth_interval) {
  *out_scale->typed_data() = *scale.typed_data();
  *out_tracker->typed_data() = *tracker.typed_data();
  GSC_FFI_CHECK(gsc_ops_update_scale(cpu(), out_scale->typed_data(), out_tracker->typed_data(), found_inf.typed_data(),
                                     growth_factor, backoff_factor, growth_interval, nullptr));
  return ffi::Error::Success();
}

// lr, inv_scale, found_inf, step, grads..., params..., exp_avg..., exp_avg_sq...
// -> params..., exp_avg..., exp_avg_sq...
ffi::Error adamw(Word lr, Word inv_scale, Word found_inf, Counter step, ffi::RemainingArgs args,
                 ffi::RemainingRets rets, double beta1, double beta2, double eps, double weight_decay) {
  const size_t count = rets.size() / 3;
  if (rets.size() != 3 * count || args.size() != 4 * count) {
    return ffi::Error::InvalidArgument("four operands and three results for each parameter are needed");
  }
  // Gradients, then what is written: parameters and both averages.
  std::array<std::vector<gsc_tensor>, 4> tensors;
  for (size_t i = 0; i < args.size(); ++i) {
    auto from = args.get<ffi::AnyBuffer>(i);
    if (!from) return ffi::Error::InvalidArgument("an operand is not an array");
    if (i < count) {
      tensors[0].push_back(tensor_of(*from));
      continue;
    }
    auto to = rets.get<ffi::AnyBuffer>(i - count);
    if (!to) return ffi::Error::InvalidArgument("a result is not an array");
    tensors[i / count].push_back(in_place(*from, **to));
  }
  std::array<List, 4> lists;
  for (size_t i = 0; i < lists.size(); ++i) GSC_FFI_CHECK(make_list(tensors[i], &lists[i]));

  gsc_optimizer_options options;
  GSC_FFI_CHECK(gsc_optimizer_options_init(&options, sizeof options, GSC_ADAMW));
  options.lr = *lr.typed_data();
  options.beta1 = beta1;
  options.beta2 = beta2;
  options.eps = eps;
  options.weight_decay = weight_decay;
  gsc_tensor_list *const state[] = {lists[2].get(), lists[3].get()};
  gsc_optimizer *made = nullptr;
  GSC_FFI_CHECK(gsc_optimizer_create(cpu(), &options, lists[1].get(), lists[0].get(), nullptr, state, 2, &made));
  const std::unique_ptr<gsc_optimizer, Destroy> optimizer(made);
  GSC_FFI_CHECK(gsc_optimizer_set_steps(made, *step.typed_data(), 0, nullptr));
  GSC_FFI_CHECK(gsc_optimizer_step_scaled(made, inv_scale.typed_data(), found_inf.typed_data(), nullptr));
  return ffi::Error::Success();
}

}  // namespace

// The module is compiled with hidden symbols; these are what jax.py looks up.
#pragma GCC visibility push(default)
XLA_FFI_DEFINE_HANDLER_SYMBOL(gradscaler_unscale_check, unscale_check,
                              ffi::Ffi::Bind().Arg<Word>().Arg<Word>().RemainingArgs().Ret<Word>().RemainingRets());

XLA_FFI_DEFINE_HANDLER_SYMBOL(gradscaler_update_scale, update_scale,
                              ffi::Ffi::Bind()
                                  .Arg<Word>()
                                  .Arg<Counter>()
                                  .Arg<Word>()
                                  .Ret<Word>()
                                  .Ret<Counter>()
                                  .Attr<double>("growth_factor")
                                  .Attr<double>("backoff_factor")
                                  .Attr<int32_t>("growth_interval"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(gradscaler_adamw, adamw,
                              ffi::Ffi::Bind()
                                  .Arg<Word>()
                                  .Arg<Word>()
                                  .Arg<Word>()
                                  .Arg<Counter>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<double>("beta1")
                                  .Attr<double>("beta2")
                                  .Attr<double>("eps")
                                  .Attr<double>("weight_decay"));
#pragma GCC visibility pop
