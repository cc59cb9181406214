// SPDX-License-Identifier: Apache-2.0
//
// Every operation that makes calls of the runtime or the driver, with what has to be there before it.
#include "tests/cuda/failing_world.h"

namespace gsc_test {
namespace {

const gsc_tensor &tensor_of(Twin &twin) {
  static gsc_tensor tensor;
  return tensor = twin.device_tensor();
}

gsc_status diagnose(World &w) {
  std::vector<gsc_tensor_diagnosis> out(2);
  std::vector<int64_t> histogram(2 * GSC_EXPONENT_BINS, 7);
  const gsc_status status = gsc_tensor_list_diagnose_sync(w.grads(), out.data(), histogram.data(), 2, nullptr);
  if (status == GSC_OK) {
    w.answer = out[1].amax + static_cast<double>(histogram[130]);
  } else {
    EXPECT_TRUE(out[0].count == 0 && histogram == std::vector<int64_t>(histogram.size(), 7)) << "outputs were changed";
  }
  return status;
}

gsc_status read_report(World &w) { return gsc_scaler_read_report_async(w.scaler(), w.grads(), w.pinned(), nullptr); }

gsc_status norm(World &w) {
  const gsc_tensor x = w.x.device_tensor();
  return gsc_ops_norm(w.context.get(), &x, 1, GSC_NORM_L2, w.sums.device(), nullptr, nullptr);
}

/// y = 0.5 x + 0.25 y, of more tensors than one launch sends.
gsc_status add_parts(World &w) {
  std::vector<gsc_tensor> from, to;
  for (int64_t i = 0; i < 130; ++i) {
    from.push_back(GSC_TENSOR_INIT(static_cast<float *>(w.x.device_tensor().data) + 2 * i, 2, GSC_FP32));
    to.push_back(GSC_TENSOR_INIT(static_cast<uint16_t *>(w.y.device_tensor().data) + 2 * i, 2, GSC_FP16));
  }
  return gsc_ops_axpby(w.context.get(), 0.5, from.data(), 0.25, to.data(), 130, nullptr);
}

gsc_status step_made(World &w) {
  return gsc_optimizer_step(static_cast<gsc_optimizer *>(w.made.back().get()), nullptr);
}
void make_one(World &w, int32_t kind, const std::vector<gsc_tensor> &params, const std::vector<gsc_tensor> &grads) {
  w.x_list = make_list(w.context, params);
  w.y_list = make_list(w.context, grads);
  w.made.emplace_back(make_optimizer(w.context, optimizer_options(kind), w.x_list, w.y_list).release(),
                      gsc_optimizer_destroy);
}

gsc_status set_pointers(World &w) {
  std::vector<void *> addresses;
  for (Twin &twin : w.training.g) addresses.push_back(twin.device_tensor().data);
  std::swap(addresses[0], addresses[1]);
  return gsc_tensor_list_set_pointers(w.grads(), addresses.data(), 2, nullptr);
}

/// Keeps what `create` makes for the rest of the test.
template <typename T, typename Create, typename Destroy>
gsc_status make(World &w, const Create &create, const Destroy &destroy) {
  T *made = nullptr;
  const gsc_status status = create(&made);
  EXPECT_EQ(made != nullptr, status == GSC_OK);
  if (made != nullptr) w.made.emplace_back(made, destroy);
  return status;
}

void overflow(World &w) {
  Random random(2);
  w.training.g[0].fill(Values::kWithInf, random);
}
void join_ranks(World &w) {
  const gsc_reducer reducer = {sizeof reducer, 0, all_reduce_alone, nullptr};
  EXPECT_GSC_OK(gsc_scaler_set_reducer(w.scaler(), &reducer));
}
void check_first(World &w) { EXPECT_GSC_OK(gsc_scaler_check_range(w.scaler(), w.grads(), 0, 1, nullptr)); }
void unscale(World &w) { EXPECT_GSC_OK(gsc_scaler_unscale(w.scaler(), w.grads(), nullptr)); }
void add_groups(World &w) {
  const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
  for (int i = 0; i < 17; ++i) EXPECT_GSC_OK(gsc_optimizer_add_group(w.optimizer(), 0, 0, &options, nullptr));
}
void step(World &w) { EXPECT_GSC_OK(gsc_scaler_step(w.scaler(), w.optimizer(), nullptr)); }

const Operation kOperations[] = {
    {"context",
     [](World &w) {
       const gsc_context_options options = counted_options();
       return make<gsc_context>(
           w, [&](auto **out) { return gsc_context_create(&options, out); }, gsc_context_destroy);
     },
     nullptr, true},
    {"context_in_current",
     [](World &w) {
       gsc_context_options options = counted_options();
       options.flags = GSC_CONTEXT_USE_CURRENT;
       return make<gsc_context>(
           w, [&](auto **out) { return gsc_context_create(&options, out); }, gsc_context_destroy);
     },
     [](World &) { emulation::set_current_context(emulation::primary_context(0)); }, true},
    {"device_info",
     [](World &) {
       gsc_device_info info{};
       info.struct_size = sizeof info;
       return gsc_device_get_info(GSC_DEVICE_CUDA, 0, &info);
     }},
    {"list",
     [](World &w) {
       const gsc_tensor tensors[] = {w.x.device_tensor(), w.y.device_tensor()};
       return make<gsc_tensor_list>(
           w, [&](auto **out) { return gsc_tensor_list_create(w.context.get(), tensors, 2, nullptr, out); },
           gsc_tensor_list_destroy);
     },
     nullptr, true},
    {"scaler",
     [](World &w) {
       return make<gsc_scaler>(
           w, [&](auto **out) { return gsc_scaler_create(w.context.get(), nullptr, out); }, gsc_scaler_destroy);
     },
     nullptr, true},
    {"check", [](World &w) { return gsc_scaler_check(w.scaler(), w.grads(), nullptr); }},
    {"check_range", [](World &w) { return gsc_scaler_check_range(w.scaler(), w.grads(), 0, 1, nullptr); }},
    {"check_range_the_rest", [](World &w) { return gsc_scaler_check_range(w.scaler(), w.grads(), 1, 1, nullptr); },
     check_first},
    {"check_joined", [](World &w) { return gsc_scaler_check(w.scaler(), w.grads(), nullptr); }, join_ranks},
    {"unscale_joined", [](World &w) { return gsc_scaler_unscale(w.scaler(), w.grads(), nullptr); }, join_ranks, false,
     "grads is unscaled: discard it"},
    {"step_after_range", [](World &w) { return gsc_scaler_step(w.scaler(), w.optimizer(), nullptr); }, check_first},
    {"unscale", [](World &w) { return gsc_scaler_unscale(w.scaler(), w.grads(), nullptr); }},
    {"unscale_checked", [](World &w) { return gsc_scaler_unscale(w.scaler(), w.grads(), nullptr); },
     [](World &w) { EXPECT_GSC_OK(gsc_scaler_check(w.scaler(), w.grads(), nullptr)); }},
    {"clip_grad_norm",
     [](World &w) { return gsc_scaler_clip_grad_norm(w.scaler(), w.grads(), 1e-4, GSC_NORM_L2, nullptr); }, unscale},
    {"clip_grad_value", [](World &w) { return gsc_scaler_clip_grad_value(w.scaler(), w.grads(), 1e-4, nullptr); },
     unscale},
    {"step", [](World &w) { return gsc_scaler_step(w.scaler(), w.optimizer(), nullptr); }},
    {"step_slice",
     [](World &w) {
       int64_t left = 0;
       return gsc_scaler_step_slice(w.scaler(), w.optimizer(), INT64_MAX, &left, nullptr);
     }},
    {"step_and_update", [](World &w) { return w.training.step(); }},
    {"step_with_overflow", [](World &w) { return w.training.step(); }, overflow},
    {"update", [](World &w) { return gsc_scaler_update(w.scaler(), nullptr); }, step},
    {"step_away", iteration_away},
    {"update_away", [](World &w) { return gsc_scaler_update(w.scaler(), nullptr); },
     [](World &w) { EXPECT_GSC_OK(iteration_away(w)); }},
    {"set_scale", [](World &w) { return gsc_scaler_set_scale(w.scaler(), 8.0f, nullptr); }},
    {"set_options",
     [](World &w) {
       const gsc_scaler_options options = scaler_options(1024.0f, 7);
       return gsc_scaler_set_options(w.scaler(), &options, nullptr);
     }},
    {"set_state",
     [](World &w) {
       w.state.scale = 16.0f;
       return gsc_scaler_set_state(w.scaler(), &w.state, nullptr);
     }},
    {"get_state",
     [](World &w) {
       gsc_scaler_state state{};
       state.struct_size = sizeof state;
       return gsc_scaler_get_state_sync(w.scaler(), &state, nullptr);
     }},
    {"get_scale",
     [](World &w) {
       float scale = 0.0f;
       return gsc_scaler_get_scale_sync(w.scaler(), &scale, nullptr);
     }},
    {"get_report",
     [](World &w) {
       gsc_report report{};
       report.struct_size = sizeof report;
       return gsc_scaler_get_report_sync(w.scaler(), w.grads(), &report, nullptr);
     },
     step},
    {"read_report", read_report, step},
    {"get_history",
     [](World &w) {
       gsc_history_entry entries[2] = {};
       int64_t count = 0;
       const gsc_status status = gsc_scaler_get_history_sync(w.scaler(), entries, 2, &count, nullptr);
       EXPECT_EQ(count, status == GSC_OK ? 2 : 0);
       EXPECT_TRUE(status == GSC_OK || entries[0].scale == 0.0f) << "an output was changed";
       return status;
     },
     [](World &w) {
       EXPECT_GSC_OK(w.training.step());
       EXPECT_GSC_OK(w.training.step());
     }},
    {"should_step",
     [](World &w) {
       int32_t apply = 0;
       return gsc_scaler_should_step_sync(w.scaler(), w.grads(), &apply, nullptr);
     }},
    {"scale",
     [](World &w) {
       const gsc_tensor from = w.x.device_tensor(), to = w.y.device_tensor();
       return gsc_scaler_scale(w.scaler(), &from, &to, 1, nullptr);
     }},
    {"set_pointers", set_pointers},
    {"set_present",
     [](World &w) {
       const uint8_t present[2] = {1, 0};
       return gsc_tensor_list_set_present(w.grads(), present, nullptr, 2, nullptr);
     }},
    {"diagnose", diagnose},
    {"diagnose_without_pools", diagnose, nullptr, false, nullptr, false},
    {"optimizer",
     [](World &w) {
       const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
       return make<gsc_optimizer>(
           w,
           [&](auto **out) {
             return gsc_optimizer_create(w.context.get(), &options, w.x_list.get(), w.y_list.get(), nullptr, nullptr, 0,
                                         out);
           },
           gsc_optimizer_destroy);
     },
     [](World &w) {
       w.x_list = make_list(w.context, {w.x.device_tensor()});
       w.y_list = make_list(w.context, {w.y.device_tensor()});
     },
     true},
    {"optimizer_add_group",
     [](World &w) {
       const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
       return gsc_optimizer_add_group(w.optimizer(), 0, 1, &options, nullptr);
     }},
    {"step_lamb", step_made, [](World &w) { make_one(w, GSC_LAMB, {w.x.device_tensor()}, {w.y.device_tensor()}); },
     false, "a part has been done"},
    {"step_with_fp64", step_made,
     [](World &w) {
       make_one(w, GSC_ADAMW, {w.x.device_tensor(), w.z.device_tensor()},
                {w.y.device_tensor(), w.away.p[0].device_tensor()});
     },
     false, "a part has been done"},
    {"step_many_groups", [](World &w) { return w.training.step(); }, add_groups},
    {"optimizer_step", [](World &w) { return gsc_optimizer_step(w.optimizer(), nullptr); }},
    {"optimizer_step_scaled",
     [](World &w) { return gsc_optimizer_step_scaled(w.optimizer(), w.word.device(), nullptr, nullptr); }},
    {"optimizer_set_lr", [](World &w) { return gsc_optimizer_set_lr(w.optimizer(), 0, 0.25, nullptr); }},
    {"optimizer_set_device_lr",
     [](World &w) { return gsc_optimizer_set_device_lr(w.optimizer(), 0, w.word.device(), nullptr); }},
    {"optimizer_set_options",
     [](World &w) {
       const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
       return gsc_optimizer_set_options(w.optimizer(), 0, &options, nullptr);
     }},
    {"optimizer_set_tensor_steps",
     [](World &w) {
       const int64_t steps[2] = {5, 1};
       return gsc_optimizer_set_tensor_steps(w.optimizer(), steps, 2, nullptr);
     },
     nullptr, false, ""},
    {"optimizer_set_steps", [](World &w) { return gsc_optimizer_set_steps(w.optimizer(), 5, 1, nullptr); }},
    {"optimizer_zero_grads", [](World &w) { return gsc_optimizer_zero_grads(w.optimizer(), nullptr); }},
    {"optimizer_save",
     [](World &w) { return gsc_optimizer_save_sync(w.optimizer(), w.saved.data(), w.saved_bytes, nullptr); }},
    {"optimizer_get_steps",
     [](World &w) {
       int64_t applied = 0, skipped = 0;
       return gsc_optimizer_get_steps_sync(w.optimizer(), &applied, &skipped, nullptr);
     }},
    {"optimizer_get_unchanged",
     [](World &w) {
       int64_t unchanged = 0;
       return gsc_optimizer_get_unchanged_sync(w.optimizer(), &unchanged, nullptr);
     }},
    {"optimizer_load",
     [](World &w) { return gsc_optimizer_load_sync(w.optimizer(), w.saved.data(), w.saved_bytes, nullptr); },
     [](World &w) { EXPECT_GSC_OK(w.training.step()); }, false, ""},
    {"ops_unscale_check",
     [](World &w) {
       return gsc_ops_unscale_check(w.context.get(), &tensor_of(w.x), 1, w.word.device(), w.inverse.device(), nullptr);
     }},
    {"ops_axpby", add_parts},
    {"ops_axpby_without_pools", add_parts, nullptr, false, nullptr, false},
    {"ops_cast",
     [](World &w) {
       const gsc_tensor from = w.x.device_tensor(), to = w.y.device_tensor();
       return gsc_ops_cast(w.context.get(), &from, &to, 1, nullptr);
     }},
    {"ops_scale",
     [](World &w) {
       const gsc_tensor from = w.x.device_tensor(), to = w.y.device_tensor();
       return gsc_ops_scale(w.context.get(), &from, &to, 1, w.word.device(), nullptr);
     }},
    {"ops_norm", norm},
    {"ops_norm_without_pools", norm, nullptr, false, nullptr, false},
    {"ops_update_scale",
     [](World &w) {
       auto *const scalars = static_cast<float *>(w.x.device_tensor().data);
       return gsc_ops_update_scale(w.context.get(), scalars, reinterpret_cast<int32_t *>(scalars + 2), scalars + 1, 2.0,
                                   0.5, 10, nullptr);
     }},
};

}  // namespace

std::span<const Operation> failing_operations() { return kOperations; }

}  // namespace gsc_test
