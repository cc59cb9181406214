// SPDX-License-Identifier: Apache-2.0
// Entry points of optimizers.
#include <optional>

#include "capi/guard.h"
#include "capi/step_call.h"
#include "core/base/error.h"
#include "core/objects/optimizer.h"

using namespace gsc;
using namespace gsc::capi;

namespace {

/// For calls that change or save an optimizer, which is not possible between the slices of a step.
class Call : public InCall<Optimizer> {
 public:
  explicit Call(const gsc_optimizer *optimizer) : InCall(optimizer, "optimizer") { (*this)->require_no_slices(); }
};

/// For calls that read or write state, which may also be another optimizer's.
class StateCall : public Call {
 public:
  explicit StateCall(const gsc_optimizer *optimizer) : Call(optimizer) { (*this)->require_free_state(); }
};

/// The defaults depend on the kind, which every version of the struct has.
gsc_optimizer_options read_options(const gsc_optimizer_options *options) {
  const int32_t kind = read_struct(options, kOptions).kind;
  return read_struct(options, kOptions, default_options(kind, kOptions.field("kind")));
}

/// For calls that only read.
Optimizer &optimizer_of(const gsc_optimizer *optimizer) { return object<Optimizer>(optimizer, "optimizer"); }

}  // namespace

gsc_status gsc_optimizer_options_init(gsc_optimizer_options *options, uint32_t struct_size, int32_t kind) {
  return guard(__func__, [&] { init_struct(options, struct_size, default_options(kind, "kind")); });
}

gsc_status gsc_optimizer_create(gsc_context *context, const gsc_optimizer_options *options, gsc_tensor_list *params,
                                gsc_tensor_list *grads, gsc_tensor_list *model_copy, gsc_tensor_list *const *state,
                                int32_t state_count, gsc_optimizer **out_optimizer) {
  return guard(__func__, [&] {
    require(out_optimizer, "out_optimizer");
    const gsc_optimizer_options o = options != nullptr ? read_options(options) : default_options(GSC_ADAMW);
    std::optional<InReading<TensorList>> held[3 + kMaxSlots];  // no callback may move a list that has been compared
    auto *next = held;
    const auto hold = [&](const gsc_tensor_list *list, const Argument &name) {
      return Ref<TensorList>::share(&*next++->emplace(list, name));
    };
    Optimizer::Lists lists;
    lists.params = hold(params, "params");
    lists.grads = hold(grads, "grads");
    if (model_copy != nullptr) lists.model_copy = hold(model_copy, "model_copy");
    if (state_count < 0 || state_count > kMaxSlots) {
      refuse("state_count", "is %d; it must be in 0..%d", state_count, kMaxSlots);
    }
    if (state_count > 0) require(state, "state");
    const bool uncounted = state != nullptr && state_count == 0;
    if (const int32_t slots = Optimizer::slots_of(o); uncounted && slots > 0) {
      refuse("state", "is not NULL but state_count is 0; this optimizer has %d state slots", slots);
    }
    for (int32_t i = 0; i < state_count; ++i) {
      lists.state[i] = hold(state[i], Argument("state").at(i));
    }
    Ref<Optimizer> made = Optimizer::create(shared<Context>(context, "context"), o, std::move(lists), state_count);
    require_no_misuse();  // before *out_optimizer is set: a caller that gets an error has no object
    *out_optimizer = to_handle<gsc_optimizer>(made.detach());
  });
}

void gsc_optimizer_destroy(gsc_optimizer *optimizer) { destroy(optimizer); }

gsc_status gsc_optimizer_add_group(gsc_optimizer *optimizer, int64_t first, int64_t count,
                                   const gsc_optimizer_options *options, int32_t *out_group) {
  return guard(__func__, [&] {
    const int32_t group = StateCall(optimizer)->add_group(first, count, read_options(options));
    if (out_group != nullptr) *out_group = group;
  });
}

gsc_status gsc_optimizer_get_group_count(const gsc_optimizer *optimizer, int32_t *out_count) {
  return guard(__func__, [&] { *require(out_count, "out_count") = optimizer_of(optimizer).group_count(); });
}

gsc_status gsc_optimizer_get_options(const gsc_optimizer *optimizer, int32_t group,
                                     gsc_optimizer_options *out_options) {
  return guard(__func__, [&] {
    require_out_struct(out_options, "out_options");
    write_struct(out_options, optimizer_of(optimizer).options(group));
  });
}

gsc_status gsc_optimizer_set_options(gsc_optimizer *optimizer, int32_t group, const gsc_optimizer_options *options,
                                     gsc_stream stream) {
  return guard(__func__, [&] { Call(optimizer)->set_options(group, read_options(options), stream); });
}

gsc_status gsc_optimizer_set_lr(gsc_optimizer *optimizer, int32_t group, double lr, gsc_stream stream) {
  return guard(__func__, [&] { Call(optimizer)->set_lr(group, lr, stream); });
}

gsc_status gsc_optimizer_set_device_lr(gsc_optimizer *optimizer, int32_t group, const float *device_lr,
                                       gsc_stream stream) {
  return guard(__func__, [&] { Call(optimizer)->set_device_lr(group, aligned(device_lr, "device_lr"), stream); });
}

gsc_status gsc_optimizer_set_evaluating(gsc_optimizer *optimizer, int32_t evaluating, gsc_stream stream) {
  return guard(__func__, [&] {
    const Call o(optimizer);
    o->require_free_lists();
    o->set_evaluating(evaluating, stream);
  });
}

gsc_status gsc_optimizer_get_evaluating(const gsc_optimizer *optimizer, int32_t *out_evaluating) {
  return guard(__func__,
               [&] { *require(out_evaluating, "out_evaluating") = optimizer_of(optimizer).is_evaluating() ? 1 : 0; });
}

gsc_status gsc_optimizer_step(gsc_optimizer *optimizer, gsc_stream stream) {
  return guard(__func__, [&] { StepCall(optimizer)->step_alone({}, stream); });
}

gsc_status gsc_optimizer_step_scaled(gsc_optimizer *optimizer, const float *inv_scale, const float *found_inf,
                                     gsc_stream stream) {
  return guard(__func__, [&] {
    StepScalars scalars;
    scalars.inv_scale = aligned(inv_scale, "inv_scale");
    scalars.found_inf = aligned(found_inf, "found_inf");
    StepCall(optimizer)->step_alone(scalars, stream);
  });
}

gsc_status gsc_optimizer_zero_grads(gsc_optimizer *optimizer, gsc_stream stream) {
  return guard(__func__, [&] { StepCall(optimizer)->zero_grads(stream); });
}

gsc_status gsc_optimizer_get_grads(const gsc_optimizer *optimizer, gsc_tensor_list **out_grads) {
  return guard(__func__, [&] {
    require(out_grads, "out_grads");
    *out_grads = to_handle<gsc_tensor_list>(&optimizer_of(optimizer).grads());
  });
}

gsc_status gsc_optimizer_get_state_count(const gsc_optimizer *optimizer, int32_t *out_count) {
  return guard(__func__, [&] { *require(out_count, "out_count") = optimizer_of(optimizer).slot_count(); });
}

gsc_status gsc_optimizer_get_state(const gsc_optimizer *optimizer, int32_t slot, gsc_tensor_list **out_list,
                                   const char **out_name) {
  return guard(__func__, [&] {
    const Optimizer &o = optimizer_of(optimizer);
    if (slot < 0 || slot >= o.slot_count()) {
      refuse("slot", "is %d, but the optimizer has %d state slots", slot, o.slot_count());
    }
    if (out_list != nullptr) *out_list = to_handle<gsc_tensor_list>(o.state(slot));
    if (out_name != nullptr) *out_name = o.slot_name(slot);
  });
}

gsc_status gsc_optimizer_get_steps_sync(const gsc_optimizer *optimizer, int64_t *out_applied, int64_t *out_skipped,
                                        gsc_stream stream) {
  return guard(__func__, [&] {
    const OptimizerRecord record = optimizer_of(optimizer).steps(stream);
    if (out_applied != nullptr) *out_applied = record.applied;
    if (out_skipped != nullptr) *out_skipped = record.skipped;
  });
}

gsc_status gsc_optimizer_set_steps(gsc_optimizer *optimizer, int64_t applied, int64_t skipped, gsc_stream stream) {
  return guard(__func__, [&] { Call(optimizer)->set_steps(applied, skipped, stream); });
}

gsc_status gsc_optimizer_get_tensor_steps_sync(const gsc_optimizer *optimizer, int64_t *out_steps, int64_t count,
                                               gsc_stream stream) {
  return guard(__func__, [&] {
    if (count > 0) require(out_steps, "out_steps");
    optimizer_of(optimizer).tensor_steps(out_steps, count, stream);
  });
}

gsc_status gsc_optimizer_get_unchanged_sync(const gsc_optimizer *optimizer, int64_t *out_unchanged, gsc_stream stream) {
  return guard(__func__, [&] {
    require(out_unchanged, "out_unchanged");
    *out_unchanged = optimizer_of(optimizer).steps(stream).unchanged;
  });
}

gsc_status gsc_optimizer_set_tensor_steps(gsc_optimizer *optimizer, const int64_t *steps, int64_t count,
                                          gsc_stream stream) {
  return guard(__func__, [&] {
    if (count > 0) require(steps, "steps");
    Call(optimizer)->set_tensor_steps(steps, count, stream);
  });
}

gsc_status gsc_optimizer_set_offsets(gsc_optimizer *optimizer, const int64_t *offsets, int64_t count,
                                     gsc_stream stream) {
  return guard(__func__, [&] {
    if (count > 0) require(offsets, "offsets");
    Call(optimizer)->set_offsets(offsets, count, stream);
  });
}

gsc_status gsc_optimizer_get_save_size(const gsc_optimizer *optimizer, int64_t *out_bytes) {
  return guard(__func__, [&] { *require(out_bytes, "out_bytes") = optimizer_of(optimizer).save_size(); });
}

gsc_status gsc_optimizer_save_sync(gsc_optimizer *optimizer, void *buffer, int64_t size, gsc_stream stream) {
  return guard(__func__, [&] { StateCall(optimizer)->save_sync(require(buffer, "buffer"), size, stream); });
}

gsc_status gsc_optimizer_load_sync(gsc_optimizer *optimizer, const void *buffer, int64_t size, gsc_stream stream) {
  return guard(__func__, [&] { StateCall(optimizer)->load_sync(require(buffer, "buffer"), size, stream); });
}
