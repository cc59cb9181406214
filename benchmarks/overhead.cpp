// SPDX-License-Identifier: Apache-2.0
// The host's cost besides the bytes: the calls of a step on one tiny tensor, and the creation of plans. Times only.
#include "measure.h"
#include "training.h"

namespace bench {
namespace {

using gradscaler::GradScaler;
using gradscaler::TensorList;

constexpr int64_t kTiny = 16;

/// One tiny tensor with everything around it.
struct Tiny {
  explicit Tiny(int threads)
      : training(kAdamw, kFp16Master, kTiny),
        lists(training.lists_of(threads, {{kTiny}})),
        scaler(context(threads), constant_scale(1024.0F)) {}

  Training training;
  Training::Cut lists;
  GradScaler scaler;
};

template <typename F>
void add_tiny(const char *name, F call) {
  add_threads(std::string("overhead/") + name, [=](benchmark::State &state, const Point &point) {
    Tiny tiny(point.threads);
    measure(state, {contender(name, 0.0, [&] { call(tiny); })});
  });
}

void add_plan(const char *name, int64_t tensors, int64_t elements) {
  add_one(std::string("overhead/plan_") + name, [=](benchmark::State &state) {
    Workspace workspace = Workspace::shared(tensors * elements * 2 + 2 * Workspace::kSkewBytes);
    const std::vector<int64_t> counts(static_cast<std::size_t>(tensors), elements);
    const auto pieces = cut(workspace.array(DType::fp16, tensors * elements, Fill::zero), counts);
    measure(state, {contender(name, 0.0, [&] { benchmark::DoNotOptimize(TensorList(context(1), pieces).get()); })});
  });
  add_one(std::string("overhead/set_pointers_") + name, [=](benchmark::State &state) {
    Workspace workspace = Workspace::shared(tensors * elements * 2 + 2 * Workspace::kSkewBytes);
    const std::vector<int64_t> counts(static_cast<std::size_t>(tensors), elements);
    const auto pieces = cut(workspace.array(DType::fp16, tensors * elements, Fill::zero), counts);
    TensorList list(context(1), pieces);
    std::vector<void *> addresses;
    for (const gradscaler::Tensor &piece : pieces) addresses.push_back(piece.data);
    measure(state, {contender(name, 0.0, [&] { list.set_pointers(addresses); })});
  });
}

}  // namespace

void add_overhead() {
  add_tiny("step", [](Tiny &t) {
    t.scaler.clip_grad_norm(t.lists.grads, 1.0);
    t.scaler.step_and_update(t.lists.optimizer);
  });
  add_tiny("step_in_four_calls", [](Tiny &t) {
    t.scaler.unscale(t.lists.grads);
    t.scaler.clip_grad_norm(t.lists.grads, 1.0);
    t.scaler.step(t.lists.optimizer);
    t.scaler.update();
  });
  add_tiny("check", [](Tiny &t) {
    t.scaler.check(t.lists.grads);
    t.scaler.discard(t.lists.grads);
  });
  add_tiny("optimizer_step", [](Tiny &t) { t.lists.optimizer.step(); });
  add_tiny("get_scale", [](Tiny &t) { benchmark::DoNotOptimize(t.scaler.get_scale_sync()); });
  add_tiny("ops_unscale_check", [](Tiny &t) {
    const float inv_scale = 1.0F;
    float found_inf = 0.0F;
    gradscaler::ops::unscale_check(context(1), t.training.grads(), &found_inf, &inv_scale);
  });
  add_plan("148_tensors", 148, 4096);
  add_plan("10000_tensors", 10000, 64);
}

}  // namespace bench
