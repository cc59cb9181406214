// SPDX-License-Identifier: Apache-2.0
//
// Every operation that makes calls of the runtime or the driver, with what has to be there before it.
#include "tests/cuda/operations.h"

namespace gsc_test {
namespace {

gsc_status diagnose(World &w) {
  std::vector<gsc_tensor_diagnosis> out(2);
  std::vector<int64_t> histogram(2 * GSC_EXPONENT_BINS, 7);
  const gsc_status status = gsc_tensor_list_diagnose_sync(w.grads, out.data(), histogram.data(), 2, nullptr);
  if (status == GSC_OK) {
    w.answer = out[1].amax + histogram[130];
  } else {
    EXPECT_TRUE(out[0].count == 0 && histogram == std::vector<int64_t>(histogram.size(), 7)) << "outputs were changed";
  }
  return status;
}

gsc_status norm(World &w) {
  const gsc_tensor x = w.x.device_tensor();
  return gsc_ops_norm(w.context, &x, 1, GSC_NORM_L2, w.sums.device(), nullptr, nullptr);
}

/// y = 0.5 x + 0.25 y, of more tensors than one launch sends.
gsc_status add_parts(World &w) {
  std::vector<gsc_tensor> from, to;
  for (int64_t i = 0; i < 130; ++i) {
    from.push_back(GSC_TENSOR_INIT(static_cast<float *>(w.x.device_data()) + 2 * i, 2, GSC_FP32));
    to.push_back(GSC_TENSOR_INIT(static_cast<uint16_t *>(w.y.device_data()) + 2 * i, 2, GSC_FP16));
  }
  return gsc_ops_axpby(w.context, 0.5, from.data(), 0.25, to.data(), 130, nullptr);
}

gsc_status make_one(World &w, int32_t kind, const std::vector<gsc_tensor> &params,
                    const std::vector<gsc_tensor> &grads) {
  w.x_list = make_list(w.context, params);
  w.y_list = make_list(w.context, grads);
  w.made.emplace_back(make_optimizer(w.context, optimizer_options(kind), w.x_list, w.y_list).release(),
                      gsc_optimizer_destroy);
  return GSC_OK;
}
gsc_status make_one_from_x_to_y(World &w, int32_t kind) {
  return make_one(w, kind, {w.x.device_tensor()}, {w.y.device_tensor()});
}
gsc_optimizer *made_one(World &w) { return static_cast<gsc_optimizer *>(w.made.back().get()); }
gsc_status step_made(World &w) { return gsc_optimizer_step(made_one(w), nullptr); }

/// Keeps what `create` makes for the rest of the test.
template <typename T, typename Create>
gsc_status make(World &w, void (*destroy)(T *), const Create &create) {
  T *made = nullptr;
  const gsc_status status = create(&made);
  EXPECT_EQ(made != nullptr, status == GSC_OK);
  if (made != nullptr) w.made.emplace_back(made, destroy);
  return status;
}
gsc_status make_context_with(World &w, uint32_t flags) {
  gsc_context_options options = host_memory.options(GSC_DEVICE_CUDA);
  options.flags = flags;
  return make(w, gsc_context_destroy, [&](auto **out) { return gsc_context_create(&options, out); });
}

gsc_status overflow(World &w) {
  Random random(2);
  w.training.g[1].fill(kWithInf, random);
  return GSC_OK;
}
gsc_status join_ranks(World &w) {
  const gsc_reducer reducer = {sizeof reducer, 0, all_reduce_alone, nullptr};
  return gsc_scaler_set_reducer(w.scaler, &reducer);
}
gsc_status check_first(World &w) { return gsc_scaler_check_range(w.scaler, w.grads, 0, 1, nullptr); }
gsc_status keep_norms(World &w) { return gsc_tensor_list_set_device_norms(w.grads, w.norms.device()->data(), 2); }
gsc_status judge_norms(World &w) {
  auto options = with_size<gsc_scaler_options>();
  EXPECT_GSC_OK(gsc_scaler_get_options(w.scaler, &options));
  options.skip_norm = 1e6;
  return gsc_scaler_set_options(w.scaler, &options, nullptr);
}
gsc_status check(World &w) { return gsc_scaler_check(w.scaler, w.grads, nullptr); }
gsc_status unscale(World &w) { return gsc_scaler_unscale(w.scaler, w.grads, nullptr); }
gsc_status step(World &w) { return gsc_scaler_step(w.scaler, w.optimizer, nullptr); }
gsc_status step_and_update(World &w) { return w.training.step(); }
gsc_status update(World &w) { return gsc_scaler_update(w.scaler, nullptr); }
gsc_status set_present(World &w) {
  const uint8_t present[2] = {1, 0};
  return gsc_tensor_list_set_present(w.grads, present, nullptr, 2, nullptr);
}
gsc_status set_tensor_steps(World &w) {
  const int64_t steps[2] = {5, 1};
  return gsc_optimizer_set_tensor_steps(w.optimizer, steps, 2, nullptr);
}

#define CALL(...) [](World &w) { return __VA_ARGS__; }
// A function by its name.
#define NAMED(function, ...) #function, CALL(gsc_##function(__VA_ARGS__))
// An operation from x to y, which `from` and `to` are.
#define FROM_X_TO_Y(...)                                                   \
  [](World &w) {                                                           \
    const gsc_tensor from = w.x.device_tensor(), to = w.y.device_tensor(); \
    return __VA_ARGS__;                                                    \
  }

const Operation kOperations[] = {
    {"context_create", CALL(make_context_with(w, 0)), nullptr, true},
    {"context_create_in_current", CALL(make_context_with(w, GSC_CONTEXT_USE_CURRENT)),
     [](World &) {
       emulation::set_current_context(emulation::primary_context(0));
       return GSC_OK;
     },
     true},
    {"device_get_info",
     [](World &) {
       auto info = with_size<gsc_device_info>();
       return gsc_device_get_info(GSC_DEVICE_CUDA, 0, &info);
     }},
    {"tensor_list_create",
     [](World &w) {
       const gsc_tensor tensors[] = {w.x.device_tensor(), w.y.device_tensor()};
       return make(w, gsc_tensor_list_destroy,
                   [&](auto **out) { return gsc_tensor_list_create(w.context, tensors, 2, nullptr, out); });
     },
     nullptr, true},
    {"scaler_create",
     CALL(make(w, gsc_scaler_destroy, [&](auto **out) { return gsc_scaler_create(w.context, nullptr, out); })),
     nullptr, true},
    {"scaler_check", check},
    {"scaler_check_range", check_first},
    {"scaler_check_range_the_rest", CALL(gsc_scaler_check_range(w.scaler, w.grads, 1, 1, nullptr)), check_first},
    {"scaler_check_joined", check, join_ranks},
    {"scaler_unscale_disabled", CALL(gsc_scaler_unscale(w.disabled, w.grads, nullptr)),
     CALL(gsc_tensor_list_set_device_factor(w.grads, w.inverse.device()))},
    {"scaler_unscale_joined", unscale, join_ranks, false, "grads is unscaled: discard it"},
    {"scaler_unscale", unscale},
    {"scaler_unscale_checked", unscale, check},
    {"scaler_check_with_norms", check, keep_norms},
    {"scaler_unscale_with_norms", unscale, keep_norms, false, "grads is unscaled: discard it"},
    {"scaler_unscale_judged", unscale, judge_norms, false, "grads is unscaled: discard it"},
    {NAMED(scaler_clip_grad_norm, w.scaler, w.grads, 1e-4, GSC_NORM_L2, nullptr), unscale},
    {NAMED(scaler_clip_grad_value, w.scaler, w.grads, 1e-4, nullptr), unscale},
    {"scaler_step", step},
    {"scaler_step_after_range", step, check_first},
    {"scaler_step_with_overflow_after_range", step,
     [](World &w) {
       overflow(w);
       return check_first(w);
     }},
    {NAMED(scaler_step_slice, w.scaler, w.optimizer, INT64_MAX, w.numbers, nullptr)},
    {"scaler_step_slice_checked", CALL(gsc_scaler_step_slice(w.scaler, w.optimizer, INT64_MAX, w.numbers, nullptr)),
     check},
    {"scaler_step_and_update", step_and_update},
    {"scaler_step_and_update_with_overflow", step_and_update, overflow},
    {"scaler_update", update, step},
    {"scaler_step_away", iteration_away, nullptr, true},
    {"scaler_update_away", update, iteration_away},
    {NAMED(scaler_set_scale, w.scaler, 8.0f, nullptr)},
    {"scaler_set_options",
     [](World &w) {
       const gsc_scaler_options options = scaler_options(1024.0f, 7);
       return gsc_scaler_set_options(w.scaler, &options, nullptr);
     }},
    {"scaler_set_state",
     [](World &w) {
       w.state.scale = 16.0f;
       return gsc_scaler_set_state(w.scaler, &w.state, nullptr);
     }},
    {NAMED(scaler_get_state_sync, w.scaler, &w.read_state, nullptr)},
    {NAMED(scaler_get_scale_sync, w.scaler, &w.scale, nullptr)},
    {"scaler_get_report_sync", CALL(report_status(w.training.scaler, w.grads)), step},
    {NAMED(scaler_read_report_async, w.scaler, w.grads, w.pinned(), nullptr), step},
    {"scaler_get_history_sync",
     [](World &w) {
       gsc_history_entry entries[2] = {};
       int64_t count = 0;
       const gsc_status status = gsc_scaler_get_history_sync(w.scaler, entries, 2, &count, nullptr);
       EXPECT_EQ(count, status == GSC_OK ? 2 : 0);
       EXPECT_TRUE(status == GSC_OK || entries[0].scale == 0.0f) << "an output was changed";
       return status;
     },
     [](World &w) {
       EXPECT_GSC_OK(step_and_update(w));
       return step_and_update(w);
     }},
    {NAMED(scaler_should_step_sync, w.scaler, w.grads, &w.apply, nullptr)},
    {"scaler_scale", FROM_X_TO_Y(gsc_scaler_scale(w.scaler, &from, &to, 1, nullptr))},
    {"tensor_list_set_pointers",
     [](World &w) {
       void *addresses[] = {w.training.g[1].device_data(), w.training.g[0].device_data()};
       return gsc_tensor_list_set_pointers(w.grads, addresses, 2, nullptr);
     }},
    {"tensor_list_set_present", set_present, nullptr, true},
    {"tensor_list_set_present_again", set_present, set_present},
    {"tensor_list_diagnose_sync", diagnose},
    {"tensor_list_diagnose_sync_without_pools", diagnose, nullptr, false, nullptr, false},
    {"optimizer_create",
     [](World &w) {
       return make(w, gsc_optimizer_destroy, [&](auto **out) {
         return gsc_optimizer_create(w.context, &w.adamw, w.x_list, w.y_list, nullptr, nullptr, 0, out);
       });
     },
     [](World &w) {
       w.x_list = make_list(w.context, {w.x.device_tensor()});
       w.y_list = make_list(w.context, {w.y.device_tensor()});
       return GSC_OK;
     },
     true},
    {NAMED(optimizer_add_group, w.optimizer, 0, 1, &w.adamw, nullptr), nullptr, true},
    {NAMED(optimizer_step, w.optimizer, nullptr)},
    {"optimizer_step_lamb", step_made,
     CALL(make_one_from_x_to_y(w, GSC_LAMB)), false,
     "a part has been done"},
    {"optimizer_step_with_fp64", step_made,
     CALL(make_one(w, GSC_ADAMW, {w.x.device_tensor(), w.z.device_tensor()},
                   {w.y.device_tensor(), w.away.p[0].device_tensor()})),
     false, "a part has been done"},
    {"scaler_step_with_many_groups", step_and_update,
     [](World &w) {
       for (int i = 0; i < 17; ++i) EXPECT_GSC_OK(gsc_optimizer_add_group(w.optimizer, 0, 0, &w.adamw, nullptr));
       return GSC_OK;
     }},
    {NAMED(optimizer_step_scaled, w.optimizer, w.word.device(), nullptr, nullptr)},
    {NAMED(optimizer_set_lr, w.optimizer, 0, 0.25, nullptr)},
    {NAMED(optimizer_set_device_lr, w.optimizer, 0, w.word.device(), nullptr)},
    {"step_with_device_norms", step_and_update,
     keep_norms},
    {"step_with_device_factor", step_and_update,
     CALL(gsc_tensor_list_set_device_factor(w.grads, w.word.device()))},
    {NAMED(optimizer_set_options, w.optimizer, 0, &w.adamw, nullptr)},
    {NAMED(optimizer_set_evaluating, made_one(w), 1, nullptr),
     CALL(make_one_from_x_to_y(w, GSC_SGD_SCHEDULE_FREE)), false,
     "a part has been done"},
    {"optimizer_set_tensor_steps", set_tensor_steps, nullptr, true, ""},
    {"optimizer_set_tensor_steps_again", set_tensor_steps, set_tensor_steps, false, ""},
    {NAMED(optimizer_get_tensor_steps_sync, w.optimizer, w.numbers, 2, nullptr)},
    {NAMED(optimizer_set_steps, w.optimizer, 5, 1, nullptr)},
    {NAMED(optimizer_zero_grads, w.optimizer, nullptr)},
    {NAMED(optimizer_save_sync, w.optimizer, w.saved.data(), std::ssize(w.saved), nullptr)},
    {"optimizer_load_sync", CALL(load_image(w.optimizer, w.saved)), step_and_update, false, ""},
    {NAMED(optimizer_get_steps_sync, w.optimizer, &w.numbers[0], &w.numbers[1], nullptr)},
    {NAMED(optimizer_get_unchanged_sync, w.optimizer, w.numbers, nullptr)},
    {"ops_unscale_check",
     [](World &w) {
       const gsc_tensor x = w.x.device_tensor();
       return gsc_ops_unscale_check(w.context, &x, 1, w.word.device(), w.inverse.device(), nullptr);
     }},
    {"ops_axpby", add_parts},
    {"ops_axpby_without_pools", add_parts, nullptr, false, nullptr, false},
    {"ops_cast", FROM_X_TO_Y(gsc_ops_cast(w.context, &from, &to, 1, nullptr))},
    {"ops_scale", FROM_X_TO_Y(gsc_ops_scale(w.context, &from, &to, 1, w.word.device(), nullptr))},
    {"ops_convert_state",
     [](World &w) {
       const gsc_tensor from = w.x.device_tensor(), to = GSC_TENSOR_INIT(w.y.device_data(), from.count, GSC_BF16);
       return gsc_ops_convert_state(w.context, &from, nullptr, &to, 1, nullptr);
     }},
    {"ops_norm", norm},
    {"ops_norm_without_pools", norm, nullptr, false, nullptr, false},
    {"ops_update_scale",
     [](World &w) {
       auto *const scalars = static_cast<float *>(w.x.device_data());
       return gsc_ops_update_scale(w.context, scalars, reinterpret_cast<int32_t *>(scalars + 2), scalars + 1, 2.0, 0.5,
                                   10, nullptr);
     }},
};

}  // namespace

std::span<const Operation> operations() { return kOperations; }

}  // namespace gsc_test
