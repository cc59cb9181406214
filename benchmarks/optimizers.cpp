// SPDX-License-Identifier: Apache-2.0
// Optimizers on one flat tensor, by dtypes and size, against a copy: `step`, the apply pass alone, for every kind, and
// `tail`, clip_grad_norm and step_and_update, which is the check pass and the apply pass. `state`: AdamW with smaller
// state against the step with fp32 masters and state, in turn. `slices` and `jobs`: a step in 16 slices, taken by one
// thread with the context's pool or by a host's threads without it, against one call.
#include <gradscaler/adapters/shared_pool.hpp>

#include "measure.h"
#include "reference.h"
#include "training.h"

namespace bench {
namespace {

using enum DType;
using enum gradscaler::OptimizerKind;
using gradscaler::MasterFormat;
using gradscaler::Optimizer;
using gradscaler::StateFormat;
using gradscaler::TensorList;

constexpr Recipe kRecipes[] = {
    {"sgd", {.kind = sgd}, 0},
    {"momentum", {.kind = sgd, .momentum = 0.9}, 1},
    {"nesterov", {.kind = sgd, .flags = GSC_OPTIMIZER_NESTEROV, .momentum = 0.9}, 1},
    {"adam", {.kind = adam}, 2},
    kAdamw,
    {"amsgrad", {.kind = adamw, .flags = GSC_OPTIMIZER_AMSGRAD}, 3},
    {"adagrad", {.kind = adagrad}, 1},
    {"lion", {.kind = lion}, 1},
    {"lamb", {.kind = lamb}, 2},
    {"rmsprop", {.kind = rmsprop}, 1},
    {"rmsprop_momentum", {.kind = rmsprop, .momentum = 0.9}, 2},
    {"rmsprop_centered", {.kind = rmsprop, .flags = GSC_OPTIMIZER_CENTERED}, 2},
    {"adadelta", {.kind = adadelta}, 2},
    {"adamax", {.kind = adamax}, 2},
    {"nadam", {.kind = nadam}, 2},
    {"radam", {.kind = radam}, 2},
    {"adabelief", {.kind = adabelief}, 2},
    {"ademamix", {.kind = ademamix}, 3},
    {"adamw_schedule_free", {.kind = adamw_schedule_free}, 2},
    {"sgd_schedule_free", {.kind = sgd_schedule_free}, 1},
    {"lars", {.kind = lars}, 1},
    {"novograd", {.kind = novograd}, 1},
    {"adamw_ema", {.kind = adamw, .ema_decay = 0.999}, 3},
};

/// Masters and state of AdamW, whose weights and gradients have one dtype.
struct Format {
  const char *name;
  StateFormat state;
  MasterFormat master;
  DType weights = bf16;
};
constexpr Format kFormats[] = {
    {"split16_fp32", StateFormat::full, MasterFormat::split16},
    {"split16_16bit", StateFormat::bits16, MasterFormat::split16},
    {"split16_8bit", StateFormat::bits8, MasterFormat::split16},
    {"split8_8bit", StateFormat::bits8, MasterFormat::split8},
    {"stochastic_8bit", StateFormat::bits8, MasterFormat::stochastic},
    {"fp32_16bit", StateFormat::bits16, MasterFormat::none, fp32},
    {"fp32_8bit", StateFormat::bits8, MasterFormat::none, fp32},
};

// Without master weights; fp64 throughout; fp32 gradients of 16-bit weights, as summed over micro-batches.
constexpr Layout kFp16Direct{"fp16_direct", fp16, fp16, std::nullopt};
constexpr Layout kBf16Direct{"bf16_direct", bf16, bf16, std::nullopt};
constexpr Layout kFp64{"fp64", fp64, fp64, std::nullopt};
constexpr Layout kWidened{"fp32_grads_fp16_copy", fp32, fp32, fp16};

void step(benchmark::State &state, const Point &point, const Recipe &recipe, const Layout &layout) {
  const Traffic traffic = traffic_of(recipe, layout);
  const int64_t elements = point.bytes / traffic.stored;
  const Training training(recipe, layout, elements, point.pages);
  auto lists = training.lists_of(point.threads, {{elements}});
  const auto call = [&] { lists.optimizer.step(); };
  Contenders contenders = {contender("step", elements * traffic.apply, call), copy_reference(point, Over::own)};
  constexpr int64_t kSmallestLoop = 1 << 12;
  if (recipe.name == kAdamw.name && layout.param == fp32 && point.bytes >= kSmallestLoop) {
    contenders.push_back(step_reference(point, size_of(layout.grad), layout.copy.has_value()));
  }
  measure(state, contenders);
}

void tail(benchmark::State &state, const Point &point, const Layout &layout) {
  const Traffic traffic = traffic_of(kAdamw, layout);
  const int64_t elements = point.bytes / traffic.stored;
  const Training training(kAdamw, layout, elements, point.pages);
  auto lists = training.lists_of(point.threads, {{elements}});
  gradscaler::GradScaler scaler(context(point.threads), constant_scale(1024.0F));
  const auto call = [&] {
    scaler.clip_grad_norm(lists.grads, 1.0);
    scaler.step_and_update(lists.optimizer);
  };
  const double bytes = elements * (traffic.check + traffic.apply);
  measure(state, {contender("tail", bytes, call), copy_reference(point, Over::own)});
}

void smaller_state(benchmark::State &state, const Point &point, const Format &format, int64_t elements) {
  Workspace workspace = Workspace::shared(elements * 12 + 3 * Workspace::kSkewBytes);
  gradscaler::Context &ctx = context(point.threads);
  const auto list = [&](DType dtype) {
    return TensorList(ctx, std::vector{workspace.array(dtype, elements, Fill::noise)});
  };
  const TensorList masters = list(fp32), weights = list(format.weights), grads = list(format.weights);
  Optimizer full = format.weights == fp32 ? Optimizer(ctx, {.kind = adamw}, masters, grads)
                                          : Optimizer(ctx, {.kind = adamw}, masters, grads, weights);
  Optimizer smaller(ctx, {.kind = adamw, .state_format = format.state, .master_format = format.master}, weights, grads);
  state.counters["parameters"] = elements;
  measure(state, {contender("step", 0.0, [&] { smaller.step(); }), contender("fp32", 0.0, [&] { full.step(); })});
}

/// A scaler's step in 16 slices against one call, both with `threads`: the context's, or a host's that take slices.
void slices(benchmark::State &state, const Point &point, const Recipe &recipe, int64_t elements, bool by_host) {
  const int threads = point.threads;
  const Traffic traffic = traffic_of(recipe, kFp16Master);
  const Training training(recipe, kFp16Master, elements);
  auto lists = training.lists_of(threads, {{elements}});
  auto parts = training.lists_of(by_host ? 1 : threads, {{elements}});
  gradscaler::GradScaler scaler(context(threads), constant_scale(1024.0F));
  gradscaler::GradScaler slicer(context(by_host ? 1 : threads), constant_scale(1024.0F));
  const int64_t bytes = elements * (traffic.check + traffic.apply);
  gradscaler::SharedPool host(by_host ? threads : 1);
  auto take_slices = [&] {
    while (slicer.step_slice(parts.optimizer, bytes / 16) > 0) {
    }
  };
  const auto sliced = [&] {
    const auto job = [](void *take, int32_t) { (*static_cast<decltype(take_slices) *>(take))(); };
    gradscaler::SharedPool::parallel_for(&host, host.threads(), job, &take_slices);
    slicer.update();
  };
  const auto whole = [&] {
    scaler.step(lists.optimizer);
    scaler.update();
  };
  measure(state, {contender("slices", bytes, sliced), contender("one_call", bytes, whole)});
}

void add_step(const Recipe &recipe, const Layout &layout) {
  const auto add = recipe.name == kAdamw.name ? add_sweep : add_two_sizes;
  add(std::string("step/") + recipe.name + "/" + layout.name, bound(step, recipe, layout));
}

}  // namespace

void add_optimizers() {
  for (const Recipe &recipe : kRecipes) {
    for (const Layout &layout : {kFp32, kFp16Master, kBf16Master}) add_step(recipe, layout);
  }
  for (const Format &format : kFormats) {
    for (const int log2_elements : {14, 24}) {
      add_threads(std::string("state/adamw/") + format.name + "/log2_elements:" + std::to_string(log2_elements),
                  bound(smaller_state, format, int64_t{1} << log2_elements));
    }
  }
  for (const Recipe &recipe : {kAdamw, Recipe{"lamb", {.kind = lamb}, 2}}) {
    for (const int log2_elements : {20, 24}) {
      for (const bool by_host : {false, true}) {
        add_threads((by_host ? "jobs/" : "slices/") + std::string(recipe.name) +
                        "/log2_elements:" + std::to_string(log2_elements),
                    bound(slices, recipe, int64_t{1} << log2_elements, by_host));
      }
    }
  }
  for (const Layout &layout : {kFp16Direct, kBf16Direct, kFp64, kWidened}) add_step(kAdamw, layout);
  for (const Layout &layout : {kFp32, kFp16Master, kBf16Master}) {
    const std::string suffix = std::string("adamw/") + layout.name;
    add_sweep("tail/" + suffix, bound(tail, layout));
    add_huge("tail/" + suffix, bound(tail, layout));
    add_huge("step/" + suffix, bound(step, kAdamw, layout));
  }
}

}  // namespace bench
