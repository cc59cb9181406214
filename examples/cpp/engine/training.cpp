// SPDX-License-Identifier: Apache-2.0
// The slices of a training step, and what is carried over a reload of the library.
#include "training.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

namespace engine {

Training::~Training() {
  close();
  for (int layer = 0; layer < kLayers; ++layer) {
    if (optimizer_states_[layer] == nullptr) continue;
    memory_.release(memory_.user, optimizer_states_[layer], state_bytes_[layer], 64);
  }
}

bool Training::fail(const char *sentence) {
  std::snprintf(error_, sizeof error_, "%s", sentence);
  return false;
}

/// The message belongs to the calling thread and goes with the library: it is copied here.
bool Training::ok(gsc_status status) { return status == GSC_OK || fail(library_.api->error_get_message()); }

bool Training::open(const gsc_api *api, gsc_context_options options) {
  library_.api = api;
  if (!created_ && !(created_ = policy_.create(7))) return fail("no memory for the policy");
  if (make_objects(options) && restore()) return true;
  close();
  return false;
}

bool Training::make_objects(gsc_context_options options) {
  const gsc_api &gsc = *library_.api;
  options.allocate = memory_.allocate;
  options.release = memory_.release;
  options.allocator_user = memory_.user;
  if (!ok(gsc.context_create(&options, &library_.context))) return false;

  gsc_optimizer_options adamw;
  if (!ok(gsc.optimizer_options_init(&adamw, sizeof adamw, GSC_ADAMW))) return false;
  for (int layer = 0; layer < kLayers; ++layer) {
    const gsc_tensor master = policy_.master(layer), grads = policy_.grads(layer), halfs = policy_.halfs(layer);
    const std::string text = "layer" + std::to_string(layer);
    const char *name = text.c_str();
    if (!ok(gsc.tensor_list_create(library_.context, &master, 1, &name, &params_[layer])) ||
        !ok(gsc.tensor_list_create(library_.context, &grads, 1, &name, &grads_[layer])) ||
        !ok(gsc.tensor_list_create(library_.context, &halfs, 1, &name, &halfs_[layer])) ||
        !ok(gsc.optimizer_create(library_.context, &adamw, params_[layer], grads_[layer], halfs_[layer], nullptr, 0,
                                 &optimizers_[layer]))) {
      return false;
    }
    if (steps_ == 0 && !saved_ && !ok(gsc.ops_cast(library_.context, &master, &halfs, 1, nullptr))) return false;
    int64_t bytes = 0;
    if (!ok(gsc.optimizer_get_save_size(optimizers_[layer], &bytes))) return false;
    if (optimizer_states_[layer] == nullptr) {
      optimizer_states_[layer] = memory_.allocate(memory_.user, bytes, 64);
      if (optimizer_states_[layer] == nullptr) return fail("no memory for what a reload carries over");
      state_bytes_[layer] = bytes;
    }
    if (bytes != state_bytes_[layer]) return fail("the reloaded library saves another number of bytes");
  }
  gsc_scaler_options policy = GSC_SCALER_OPTIONS_INIT;
  policy.init_scale = 0x1p24F;  // too high for these gradients, so that the first steps show how it comes down
  policy.growth_interval = 25;
  return ok(gsc.scaler_create(library_.context, &policy, &scaler_));
}

bool Training::restore() {
  if (!saved_) return true;
  if (!ok(library_.api->scaler_set_state(scaler_, &scaler_state_, nullptr))) return false;
  for (int layer = 0; layer < kLayers; ++layer) {
    if (!ok(library_.api->optimizer_load_sync(optimizers_[layer], optimizer_states_[layer], state_bytes_[layer],
                                              nullptr))) {
      return false;
    }
  }
  // Which lists were checked is not saved. A check changes nothing and is repeated. Where layers have been stepped all
  // were clean, and the next step checks its own list.
  for (int layer = 0; stage_ == Stage::kCheck && layer < index_; ++layer) {
    if (!ok(library_.api->scaler_check(scaler_, grads_[layer], nullptr))) return false;
  }
  saved_ = false;
  return true;
}

bool Training::save() {
  scaler_state_.struct_size = sizeof scaler_state_;
  if (!ok(library_.api->scaler_get_state_sync(scaler_, &scaler_state_, nullptr))) return false;
  for (int layer = 0; layer < kLayers; ++layer) {
    if (!ok(library_.api->optimizer_save_sync(optimizers_[layer], optimizer_states_[layer], state_bytes_[layer],
                                              nullptr))) {
      return false;
    }
  }
  saved_ = true;
  return true;
}

void Training::close() {
  if (library_.context == nullptr) return;
  const gsc_api &gsc = *library_.api;
  gsc.scaler_destroy(scaler_);
  scaler_ = nullptr;
  for (int layer = 0; layer < kLayers; ++layer) {
    gsc.optimizer_destroy(optimizers_[layer]);
    optimizers_[layer] = nullptr;
    for (gsc_tensor_list **list : {&params_[layer], &grads_[layer], &halfs_[layer]}) {
      gsc.tensor_list_destroy(*list);
      *list = nullptr;
    }
  }
  gsc.context_destroy(library_.context);
  library_ = {};
}

bool Training::run_slice() {
  switch (stage_) {
    case Stage::kBegin:
      if (!ok(policy_.begin(library_, index_))) return false;
      if (++index_ < kLayers) return true;
      batch_loss_ = 0.0;
      stage_ = Stage::kGradients;
      break;
    case Stage::kGradients:
      if (!ok(policy_.add_gradients(library_, scaler_, random_, &batch_loss_))) return false;
      if (++index_ < kSlices) return true;
      stage_ = Stage::kCheck;
      break;
    case Stage::kCheck:
      return check_layer();
    case Stage::kStep:
      return step_layer();
  }
  index_ = 0;
  return true;
}

/// After the last layer's check it is known whether the step is skipped: then update lowers the scale and no layer is
/// stepped.
bool Training::check_layer() {
  if (!ok(library_.api->scaler_check(scaler_, grads_[index_], nullptr))) return false;
  if (++index_ < kLayers) return true;
  index_ = 0;
  bool overflow = false;
  for (gsc_tensor_list *list : grads_) {
    gsc_report report;
    report.struct_size = sizeof report;
    if (!ok(library_.api->scaler_get_report_sync(scaler_, list, &report, nullptr))) return false;
    overflow |= (report.flags & GSC_REPORT_OVERFLOW) != 0;
  }
  if (!overflow) {
    stage_ = Stage::kStep;
    return true;
  }
  ++skipped_;
  return end_step();
}

bool Training::step_layer() {
  if (!ok(library_.api->scaler_step(scaler_, optimizers_[index_], nullptr))) return false;
  if (++index_ < kLayers) return true;
  return end_step();
}

/// In the slice of the last step or check, so that a reload never finds lists that wait for an update alone.
bool Training::end_step() {
  if (!ok(library_.api->scaler_update(scaler_, nullptr))) return false;
  if (!ok(library_.api->scaler_get_scale_sync(scaler_, &scale_, nullptr))) return false;
  loss_ = batch_loss_;
  ++steps_;
  stage_ = Stage::kBegin;
  index_ = 0;
  return true;
}

bool Training::run_within(double microseconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  double elapsed = 0.0;
  do {
    double &longest = longest_[static_cast<int>(stage_)];
    if (!run_slice()) return false;
    const double now = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    // One late slice, on a machine that is busy, is forgotten after a while.
    longest = std::max(now - elapsed, 0.95 * longest);
    elapsed = now;
  } while (elapsed + longest_[static_cast<int>(stage_)] <= microseconds);
  return true;
}

}  // namespace engine
