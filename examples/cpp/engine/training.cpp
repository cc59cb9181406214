// SPDX-License-Identifier: Apache-2.0
// The slices of a training step, and what is carried over a reload of the library.
#include "training.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace engine {

Training::~Training() {
  close();
  if (optimizer_state_ != nullptr) memory_.release(memory_.user, optimizer_state_, state_bytes_, 64);
}

bool Training::fail(const char *sentence) {
  std::snprintf(error_, sizeof error_, "%s", sentence);
  return false;
}

/// The message belongs to the calling thread and goes with the library: it is copied here.
bool Training::ok(gsc_status status) { return status == GSC_OK || fail(library_.api->error_get_message()); }

bool Training::open(const gsc_api *api, gsc_context_options options) {
  library_.api = api;
  if (!created_ && !(created_ = model_.create())) return fail("no memory for the model");
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

  gsc_tensor master[kLayers], grads[kLayers], halfs[kLayers];
  static const char *const kNames[kLayers] = {"layer0", "layer1", "layer2"};
  for (int layer = 0; layer < kLayers; ++layer) {
    master[layer] = model_.master(layer);
    grads[layer] = model_.grads(layer);
    halfs[layer] = model_.halfs(layer);
  }
  gsc_optimizer_options adamw;
  if (!ok(gsc.optimizer_options_init(&adamw, sizeof adamw, GSC_ADAMW))) return false;
  adamw.lr = 0.02;
  if (!ok(gsc.tensor_list_create(library_.context, master, kLayers, kNames, &params_)) ||
      !ok(gsc.tensor_list_create(library_.context, grads, kLayers, kNames, &grads_)) ||
      !ok(gsc.tensor_list_create(library_.context, halfs, kLayers, kNames, &halfs_)) ||
      !ok(gsc.optimizer_create(library_.context, &adamw, params_, grads_, halfs_, nullptr, 0, &optimizer_))) {
    return false;
  }
  if (steps_ == 0 && !saved_ && !ok(gsc.ops_cast(library_.context, master, halfs, kLayers, nullptr))) return false;
  int64_t bytes = 0;
  if (!ok(gsc.optimizer_get_save_size(optimizer_, &bytes))) return false;
  if (optimizer_state_ == nullptr) {
    optimizer_state_ = memory_.allocate(memory_.user, bytes, 64);
    if (optimizer_state_ == nullptr) return fail("no memory for what a reload carries over");
    state_bytes_ = bytes;
  }
  if (bytes != state_bytes_) return fail("the reloaded library saves another number of bytes");
  gsc_scaler_options policy = GSC_SCALER_OPTIONS_INIT;
  policy.init_scale = 0x1p36F;  // too high for these gradients, so that the first steps show how it comes down
  policy.growth_interval = 25;
  return ok(gsc.scaler_create(library_.context, &policy, &scaler_));
}

bool Training::restore() {
  if (!saved_) return true;
  if (!ok(library_.api->scaler_set_state(scaler_, &scaler_state_, nullptr)) ||
      !ok(library_.api->optimizer_load_sync(optimizer_, optimizer_state_, state_bytes_, nullptr))) {
    return false;
  }
  saved_ = false;
  return true;
}

bool Training::save() {
  if (stage_ == Stage::kStep && !step_slice(INT64_MAX)) return false;
  scaler_state_.struct_size = sizeof scaler_state_;
  saved_ = ok(library_.api->scaler_get_state_sync(scaler_, &scaler_state_, nullptr)) &&
           ok(library_.api->optimizer_save_sync(optimizer_, optimizer_state_, state_bytes_, nullptr));
  return saved_;
}

void Training::close() {
  if (library_.context == nullptr) return;
  const gsc_api &gsc = *library_.api;
  gsc.scaler_destroy(scaler_);
  gsc.optimizer_destroy(optimizer_);
  for (gsc_tensor_list *list : {params_, grads_, halfs_}) gsc.tensor_list_destroy(list);
  gsc.context_destroy(library_.context);
  scaler_ = nullptr;
  optimizer_ = nullptr;
  params_ = grads_ = halfs_ = nullptr;
  library_ = {};
}

bool Training::run_slice() {
  if (stage_ == Stage::kStep) return step_slice(step_bytes_);
  if (slice_ == 0) batch_loss_ = 0.0;
  if (!ok(model_.write_gradients(library_, scaler_, slice_, &batch_loss_))) return false;
  if (++slice_ == kSlices) stage_ = Stage::kStep;
  return true;
}

/// After the last slice the scale moves, and the step is done.
bool Training::step_slice(int64_t bytes) {
  const gsc_api &gsc = *library_.api;
  int64_t left = 0;
  if (!ok(gsc.scaler_step_slice(scaler_, optimizer_, bytes, &left, nullptr))) return false;
  // Reading the scale waits for a GPU, so that the slice's time is the GPU's.
  if (left > 0) return ok(gsc.scaler_get_scale_sync(scaler_, &scale_, nullptr));
  if (!ok(gsc.scaler_update(scaler_, nullptr)) || !ok(gsc.scaler_get_scale_sync(scaler_, &scale_, nullptr)) ||
      !ok(gsc.optimizer_get_steps_sync(optimizer_, nullptr, &skipped_, nullptr))) {
    return false;
  }
  loss_ = batch_loss_;
  ++steps_;
  stage_ = Stage::kGradients;
  slice_ = 0;
  return true;
}

bool Training::run_within(double microseconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  double elapsed = 0.0;
  do {
    const Stage stage = stage_;
    double &longest = longest_[static_cast<int>(stage)];
    if (!run_slice()) return false;
    const double now = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    if (stage == Stage::kStep) worst_step_ms_ = std::max(worst_step_ms_, (now - elapsed) / 1000.0);
    // One late slice, on a machine that is busy, is forgotten after a while.
    longest = std::max(now - elapsed, 0.95 * longest);
    elapsed = now;
  } while (elapsed + longest_[static_cast<int>(stage_)] <= microseconds);
  return true;
}

}  // namespace engine
