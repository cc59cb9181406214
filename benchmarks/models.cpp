// SPDX-License-Identifier: Apache-2.0
// The whole tail of a step, clip_grad_norm and step_and_update with AdamW, over the tensors of real networks and over
// many small ones: against one flat tensor of the same memory, against the same work in separate calls (unscale and
// clip in place, then step), and against a copy. Also a step that is skipped, against the check that it cannot avoid,
// and one from which every other tensor is absent, against one of a list of the others.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "measure.h"
#include "reference.h"
#include "training.h"

namespace bench {
namespace {

using gradscaler::GradScaler;

using Shapes = std::vector<int64_t>;

int64_t elements_of(const Shapes &shapes) { return std::accumulate(shapes.begin(), shapes.end(), int64_t{0}); }

/// 161 tensors, 25,557,032 parameters.
Shapes resnet50() {
  Shapes shapes;
  const auto convolution = [&](int64_t in, int64_t out, int64_t kernel) {
    shapes.push_back(in * out * kernel * kernel);
    shapes.insert(shapes.end(), {out, out});  // weight and bias of the batch normalisation
  };
  convolution(3, 64, 7);
  int64_t in = 64;
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t width = int64_t{64} << stage;
    for (int block = 0; block < blocks[stage]; ++block) {
      convolution(in, width, 1);
      convolution(width, width, 3);
      convolution(width, 4 * width, 1);
      if (block == 0) convolution(in, 4 * width, 1);
      in = 4 * width;
    }
  }
  shapes.insert(shapes.end(), {2048 * 1000, 1000});
  return shapes;
}

/// 148 tensors, 124,439,808 parameters.
Shapes gpt2_124m() {
  constexpr int64_t w = 768;
  Shapes shapes{50257 * w, 1024 * w};
  for (int layer = 0; layer < 12; ++layer) {
    shapes.insert(shapes.end(), {w, w, 3 * w * w, 3 * w, w * w, w, w, w, 4 * w * w, 4 * w, 4 * w * w, w});
  }
  shapes.insert(shapes.end(), {w, w});
  return shapes;
}

void fused_tail(GradScaler &scaler, Training::Cut &lists, double max_norm) {
  scaler.clip_grad_norm(lists.grads, max_norm);
  scaler.step_and_update(lists.optimizer);
}

void separate_tail(GradScaler &scaler, Training::Cut &lists, double max_norm) {
  scaler.unscale(lists.grads);
  scaler.clip_grad_norm(lists.grads, max_norm);
  scaler.step(lists.optimizer);
  scaler.update();
}

void model_tail(benchmark::State &state, const Point &point, const Shapes &shapes, const Layout &layout) {
  const int threads = point.threads;
  const Traffic traffic = traffic_of(kAdamw, layout);
  const int64_t elements = elements_of(shapes);
  const Training training(kAdamw, layout, elements);
  auto many = training.lists_of(threads, shapes);
  auto flat = training.lists_of(threads, {{elements}});
  // Unscaling doubles the gradients and clipping takes them back to the norm they have now, so that every call finds
  // the same, also where the gradients are rewritten.
  GradScaler scaler(context(threads), constant_scale(0.5F));
  double norm = 0.0;
  gradscaler::ops::norm(context(threads), training.grads(), gradscaler::Norm::l2, &norm);
  const double bytes = elements * (traffic.check + traffic.apply);
  state.counters["tensors"] = shapes.size();
  state.counters["parameters"] = elements;
  measure(state, {contender("tail", bytes, [&] { fused_tail(scaler, many, norm); }),
                  contender("flat", bytes, [&] { fused_tail(scaler, flat, norm); }),
                  contender("separate", 0.0, [&] { separate_tail(scaler, many, norm); }),
                  copy_reference({threads, elements * traffic.stored}, Over::own)});
}

void skipped(benchmark::State &state, const Point &point, const Shapes &shapes, const Layout &layout) {
  const int64_t elements = elements_of(shapes);
  const Training training(kAdamw, layout, elements);
  auto lists = training.lists_of(point.threads, shapes);
  char *last = static_cast<char *>(training.grads().data) + (elements - 1) * size_of(layout.grad);
  double infinity = std::numeric_limits<double>::infinity();
  gradscaler::ops::cast(context(1), gradscaler::tensor(std::span(&infinity, 1)),
                        gradscaler::tensor(last, 1, layout.grad));
  GradScaler scaler(context(point.threads), {.min_scale = 1.0F});
  const auto check = [&] {
    scaler.check(lists.grads);
    scaler.discard(lists.grads);
  };
  measure(state, {contender("skipped", 0.0, [&] { fused_tail(scaler, lists, 1.0); }), contender("check", 0.0, check)});
}

void absent(benchmark::State &state, const Point &point, const Shapes &shapes, const Layout &layout) {
  const Training training(kAdamw, layout, elements_of(shapes));
  auto all = training.lists_of(point.threads, shapes);
  auto others = training.lists_of(point.threads, shapes, 2);
  std::vector<uint8_t> present(shapes.size());
  for (size_t i = 0; i < present.size(); i += 2) present[i] = 1;
  GradScaler scaler(context(point.threads), constant_scale(1024.0F));
  const auto some = [&] {
    all.grads.set_present(present);
    fused_tail(scaler, all, 1.0);
  };
  measure(state, {contender("absent", 0.0, some), contender("others", 0.0, [&] { fused_tail(scaler, others, 1.0); })});
}

}  // namespace

void add_models() {
  const std::pair<std::string, Shapes> models[] = {
      {"1000x1024", Shapes(1000, 1024)}, {"1000x64", Shapes(1000, 64)}, {"10000x64", Shapes(10000, 64)},
      {"resnet50", resnet50()},          {"gpt2_124m", gpt2_124m()},
  };
  for (const auto &[name, shapes] : models) {
    for (const Layout &layout : {kFp32, kFp16Master}) {
      const std::string suffix = name + "/" + layout.name;
      add_threads("model/" + suffix, bound(model_tail, shapes, layout));
      add_threads("skipped/" + suffix, bound(skipped, shapes, layout));
      if (std::adjacent_find(shapes.begin(), shapes.end(), std::not_equal_to<>()) != shapes.end()) continue;
      add_threads("absent/" + suffix, bound(absent, shapes, layout));
    }
  }
}

}  // namespace bench
