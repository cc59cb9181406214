// SPDX-License-Identifier: Apache-2.0
// Entry points of scalers.
#include "capi/guard.h"
#include "capi/step_call.h"
#include "core/base/decimal.h"
#include "core/base/error.h"
#include "core/objects/scaler.h"
#include "core/objects/scaler_options.h"

using namespace gsc;
using namespace gsc::capi;

namespace {

struct ScalerCall : InCall<Scaler> {
  explicit ScalerCall(const gsc_scaler *scaler) : InCall(scaler, "scaler") {}
};
struct GradsCall : InCall<TensorList> {
  explicit GradsCall(const gsc_tensor_list *grads) : InCall(grads, "grads") {}
};

gsc_scaler_options read_options(const gsc_scaler_options *options) {
  return read_struct(options, kOptions, default_scaler_options());
}

/// For calls that only read.
Scaler &scaler_of(const gsc_scaler *scaler) { return object<Scaler>(scaler, "scaler"); }
TensorList *grads_or_null(const gsc_tensor_list *grads) {
  return grads != nullptr ? &object<TensorList>(grads, "grads") : nullptr;
}

}  // namespace

gsc_status gsc_scaler_options_init(gsc_scaler_options *options, uint32_t struct_size, int32_t preset) {
  return guard(__func__, [&] { init_struct(options, struct_size, preset_scaler_options(preset)); });
}

gsc_status gsc_scaler_create(gsc_context *context, const gsc_scaler_options *options, gsc_scaler **out_scaler) {
  return guard(__func__, [&] {
    require(out_scaler, "out_scaler");
    *out_scaler =
        to_handle<gsc_scaler>(Scaler::create(shared<Context>(context, "context"),
                                             options != nullptr ? read_options(options) : default_scaler_options())
                                  .detach());
  });
}

void gsc_scaler_destroy(gsc_scaler *scaler) { destroy(scaler); }

gsc_status gsc_scaler_scale(gsc_scaler *scaler, const gsc_tensor *src, const gsc_tensor *dst, int64_t count,
                            gsc_stream stream) {
  return guard(__func__, [&] { ScalerCall(scaler)->scale(src, dst, count, stream); });
}

gsc_status gsc_scaler_unscale(gsc_scaler *scaler, gsc_tensor_list *grads, gsc_stream stream) {
  return guard(__func__, [&] { ScalerCall(scaler)->unscale(*GradsCall(grads), stream); });
}

gsc_status gsc_scaler_check(gsc_scaler *scaler, gsc_tensor_list *grads, gsc_stream stream) {
  return guard(__func__, [&] { ScalerCall(scaler)->check(*GradsCall(grads), stream); });
}

gsc_status gsc_scaler_check_range(gsc_scaler *scaler, gsc_tensor_list *grads, int64_t first, int64_t count,
                                  gsc_stream stream) {
  return guard(__func__, [&] { ScalerCall(scaler)->check_range(*GradsCall(grads), first, count, stream); });
}

gsc_status gsc_scaler_clip_grad_norm(gsc_scaler *scaler, gsc_tensor_list *grads, double max_norm, int32_t norm_type,
                                     gsc_stream stream) {
  return guard(__func__, [&] { ScalerCall(scaler)->clip_grad_norm(*GradsCall(grads), max_norm, norm_type, stream); });
}

gsc_status gsc_scaler_clip_grad_value(gsc_scaler *scaler, gsc_tensor_list *grads, double clip_value,
                                      gsc_stream stream) {
  return guard(__func__, [&] { ScalerCall(scaler)->clip_grad_value(*GradsCall(grads), clip_value, stream); });
}

gsc_status gsc_scaler_step(gsc_scaler *scaler, gsc_optimizer *optimizer, gsc_stream stream) {
  return guard(__func__, [&] { ScalerCall(scaler)->step(*StepCall(optimizer), stream); });
}

gsc_status gsc_scaler_step_slice(gsc_scaler *scaler, gsc_optimizer *optimizer, int64_t max_bytes, int64_t *out_left,
                                 gsc_stream stream) {
  return guard(__func__, [&] {
    require(out_left, "out_left");
    // The scaler keeps other calls off the objects: several of these calls run at once.
    const Ref<Scaler> s = shared<Scaler>(scaler, "scaler");
    *out_left = s->step_slice(*shared<Optimizer>(optimizer, "optimizer"), max_bytes, stream);
  });
}

gsc_status gsc_scaler_should_step_sync(gsc_scaler *scaler, gsc_tensor_list *grads, int32_t *out_apply,
                                       gsc_stream stream) {
  return guard(__func__, [&] {
    require(out_apply, "out_apply");
    *out_apply = ScalerCall(scaler)->should_step_sync(*GradsCall(grads), stream) ? 1 : 0;
  });
}

gsc_status gsc_scaler_update(gsc_scaler *scaler, gsc_stream stream) {
  return guard(__func__, [&] { ScalerCall(scaler)->update(stream); });
}

gsc_status gsc_scaler_step_and_update(gsc_scaler *scaler, gsc_optimizer *optimizer, gsc_stream stream) {
  return guard(__func__, [&] { ScalerCall(scaler)->step_and_update(*StepCall(optimizer), stream); });
}

gsc_status gsc_scaler_discard(gsc_scaler *scaler, gsc_tensor_list *grads) {
  return guard(__func__, [&] {
    const ScalerCall s(scaler);
    if (grads != nullptr) {
      s->discard(*GradsCall(grads));
    } else {
      s->discard_all();
    }
  });
}

gsc_status gsc_scaler_set_scale(gsc_scaler *scaler, float scale, gsc_stream stream) {
  return guard(__func__, [&] { ScalerCall(scaler)->set_scale(scale, stream); });
}

gsc_status gsc_scaler_get_scale_sync(const gsc_scaler *scaler, float *out_scale, gsc_stream stream) {
  return guard(__func__, [&] {
    require(out_scale, "out_scale");
    // The call may log, and the callback may destroy the scaler.
    *out_scale = shared<Scaler>(scaler, "scaler")->get_scale(stream);
  });
}

gsc_status gsc_scaler_get_report_sync(gsc_scaler *scaler, const gsc_tensor_list *grads, gsc_report *out_report,
                                      gsc_stream stream) {
  return guard(__func__, [&] {
    require_out_struct(out_report, "out_report");
    gsc_report report;
    // The call may log, and the callback may destroy the scaler.
    const gsc_status status = shared<Scaler>(scaler, "scaler")->get_report_sync(grads_or_null(grads), report, stream);
    write_struct(out_report, report);
    if (status == GSC_ERROR_SPIKES) {
      fail(status, kNoArgument,
           "the gradient norm %s is above its limit, which is %s, and %d updates in a row were skipped",
           Decimal(report.grad_norm).c_str(), Decimal(report.norm_limit).c_str(), report.consecutive_skips);
    }
    if (status == GSC_ERROR_SCALE_FLOOR) {
      fail(status, kNoArgument, "the loss scale %s cannot be lowered any further and %d updates in a row were skipped",
           Decimal(report.scale).c_str(), report.consecutive_skips);
    }
  });
}

gsc_status gsc_scaler_read_report_async(gsc_scaler *scaler, const gsc_tensor_list *grads, gsc_report *out_report,
                                        gsc_stream stream) {
  return guard(__func__, [&] {
    require(out_report, "out_report");
    Scaler &self = scaler_of(scaler);
    const bool has_size = !self.context()->backend().report_is_address();
    const uint32_t size = has_size ? require_out_struct(out_report, "out_report")->struct_size : 0;
    self.read_report_async(grads_or_null(grads), out_report, size, stream);
  });
}

gsc_status gsc_scaler_get_history_sync(gsc_scaler *scaler, gsc_history_entry *out_entries, int64_t capacity,
                                       int64_t *out_count, gsc_stream stream) {
  return guard(__func__, [&] {
    require(out_count, "out_count");
    // The call may allocate, and the callback may destroy the scaler.
    *out_count = shared<Scaler>(scaler, "scaler")->history_sync(out_entries, capacity, stream);
  });
}

gsc_status gsc_scaler_get_device_state(gsc_scaler *scaler, const gsc_tensor_list *grads, gsc_device_state *out_state) {
  return guard(__func__, [&] {
    require_out_struct(out_state, "out_state");
    write_struct(out_state, scaler_of(scaler).device_state(grads_or_null(grads)));
  });
}

gsc_status gsc_scaler_get_state_sync(gsc_scaler *scaler, gsc_scaler_state *out_state, gsc_stream stream) {
  return guard(__func__, [&] {
    require_out_struct(out_state, "out_state");
    write_struct(out_state, shared<Scaler>(scaler, "scaler")->get_state(stream));  // may log, too
  });
}

gsc_status gsc_scaler_set_state(gsc_scaler *scaler, const gsc_scaler_state *state, gsc_stream stream) {
  return guard(__func__, [&] { ScalerCall(scaler)->set_state(read_struct(state, "state"), stream); });
}

gsc_status gsc_scaler_get_options(const gsc_scaler *scaler, gsc_scaler_options *out_options) {
  return guard(__func__,
               [&] { write_struct(require_out_struct(out_options, "out_options"), scaler_of(scaler).options()); });
}

gsc_status gsc_scaler_set_options(gsc_scaler *scaler, const gsc_scaler_options *options, gsc_stream stream) {
  return guard(__func__, [&] { ScalerCall(scaler)->set_options(read_options(options), stream); });
}

gsc_status gsc_scaler_set_reducer(gsc_scaler *scaler, const gsc_reducer *reducer) {
  return guard(__func__, [&] {
    const ScalerCall s(scaler);
    if (reducer == nullptr) {
      s->set_reducer(nullptr);
      return;
    }
    const gsc_reducer copy = read_struct(reducer, "reducer");
    if (copy.flags != 0) refuse(Argument("reducer").field("flags"), "is %u; no flag is defined", copy.flags);
    if (copy.all_reduce == nullptr) refuse(Argument("reducer").field("all_reduce"), "is NULL");
    s->set_reducer(&copy);
  });
}
