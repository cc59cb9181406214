// SPDX-License-Identifier: Apache-2.0
//
// The scaler and the optimizers of the libtorch adapter against libtorch itself. One translation unit: the headers of
// libtorch take half a minute.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <gradscaler/adapters/torch.hpp>
#include <optional>
#include <sstream>

#include "tests/adapters/torch/refused.h"
#include "tests/adapters/torch/tensors.h"

namespace {

namespace gt = gradscaler::torch;
namespace optim = torch::optim;
using optim::AdamWOptions;
using optim::SGDOptions;

/// Largest distance in ulp of fp32 at the magnitude of the parameter, or of the way it may have come. inf with a NaN,
/// which a maximum would drop.
double ulps(const at::Tensor &a, const at::Tensor &b, double way) {
  if (same_bits(a, b)) return 0.0;
  const at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  const at::Tensor unit = at::exp2(at::floor(at::log2(at::maximum(x.abs(), y.abs()).clamp_min(way))) - 23);
  const double found = ((x - y).abs() / unit).max().item<double>();
  return std::isnan(found) ? INFINITY : found;
}
double ulps(const Tensors &a, const Tensors &b, double way) {
  double worst = 0.0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, ulps(a[i], b[i], way));
  return worst;
}

Tensors copies_of(const Tensors &tensors) {
  Tensors copies;
  for (const at::Tensor &tensor : tensors) copies.push_back(tensor.detach().clone().requires_grad_());
  return copies;
}

std::unique_ptr<optim::Optimizer> sgd_of(const Tensors &params, bool ours) {
  if (ours) return std::make_unique<gt::SGD>(params, SGDOptions(0.1));
  return std::make_unique<optim::SGD>(params, SGDOptions(0.1));
}

/// The same gradient for both; absent for those that `present` leaves out.
void set_grads(
    Tensors &a, Tensors &b, uint64_t seed, const std::function<bool(size_t)> &present = [](size_t) { return true; }) {
  for (size_t i = 0; i < a.size(); ++i) {
    const at::Tensor grad = parameter(a[i].sizes(), 1000 * seed + i).detach();
    a[i].mutable_grad() = present(i) ? grad.clone() : at::Tensor();
    b[i].mutable_grad() = present(i) ? grad.clone() : at::Tensor();
  }
}

// The scaler.

TEST(TorchScaler, ScalesAsAnOperationOfAutograd) {
  gt::GradScaler scaler(at::kCPU, {.init_scale = 8.0f});
  at::Tensor x = parameter({3}, 1);
  const at::Tensor scaled = scaler.scale(x * x);
  // What the graph saved is not what the scale becomes.
  scaler.update(2.0f);
  scaled.sum().backward();
  EXPECT_TRUE(same_bits(scaled, 8 * x * x));
  EXPECT_TRUE(same_bits(x.grad(), 16 * x));
  // As in Python: a loss of 16 bits becomes fp32, in which the scale has room.
  EXPECT_EQ(scaler.scale(at::ones({}, at::kHalf)).scalar_type(), at::kFloat);
  EXPECT_EQ(scaler.scale(at::ones({2}, at::kHalf)).scalar_type(), at::kHalf);
  EXPECT_EQ(scaler.scale(Tensors{x, scaled}).size(), 2u);
}

TEST(TorchScaler, DisabledItIsNotThere) {
  gt::GradScaler scaler(at::kCPU, {.enabled = false});
  for (const bool ours : {false, true}) {
    Tensors a = parameters(), b = copies_of(a);
    const auto with = sgd_of(a, ours);
    optim::SGD without(b, SGDOptions(0.1));
    set_grads(a, b, 1);
    EXPECT_TRUE(scaler.scale(a[0]).is_same(a[0]));
    scaler.unscale_(*with);
    scaler.step(*with);
    scaler.update();
    without.step();
    EXPECT_TRUE(same_bits(a, b));
    EXPECT_EQ(scaler.get_scale(), 1.0f);
  }
}

TEST(TorchScaler, CallsOutOfOrder) {
  Tensors a = parameters(), b = copies_of(a);
  for (const bool ours : {false, true}) {
    const auto sgd = sgd_of(a, ours);
    gt::GradScaler scaler(at::kCPU);
    EXPECT_REFUSED(scaler.update(), "update");
    sgd->zero_grad();
    EXPECT_REFUSED(scaler.step(*sgd), "step: no parameter of the optimizer has a gradient");
    set_grads(a, b, 1);
    scaler.unscale_(*sgd);
    EXPECT_REFUSED(scaler.unscale_(*sgd), "unscale_() has already been called");
    scaler.step(*sgd);
    EXPECT_REFUSED(scaler.step(*sgd), "step() is called after step()");
    EXPECT_REFUSED(scaler.unscale_(*sgd), "unscale_() is called after step()");
    scaler.update();
    scaler.unscale_(*sgd);
    scaler.discard();
    scaler.unscale_(*sgd);
  }
  optim::LBFGS lbfgs(a);
  EXPECT_REFUSED(gt::GradScaler(at::kCPU).step(lbfgs), "LBFGS");
  EXPECT_REFUSED(gt::GradScaler(at::kMeta), "device is meta");
}

TEST(TorchScaler, RefusesWhatItCannotUnscale) {
  const auto with_grad = [](at::Tensor param, const at::Tensor &grad, bool ours) {
    param.set_requires_grad(true);
    param.mutable_grad() = grad;
    const auto sgd = sgd_of({parameters()[0], std::move(param)}, ours);
    return message_of([&] { gt::GradScaler(at::kCPU).step(*sgd); });
  };
  const auto says = [](const std::string &message, const char *part) {
    EXPECT_PRED_FORMAT2(testing::IsSubstring, part, message);
    EXPECT_PRED_FORMAT2(testing::IsSubstring, "of parameter 1 in group 0", message);
  };
  const at::Tensor matrix = at::ones({4, 4});
  for (const bool ours : {false, true}) {
    says(with_grad(at::ones({4, 4}), matrix.to_sparse(), ours), "has layout Sparse");
    says(with_grad(at::ones({4, 4}), at::ones({1, 1}).expand({4, 4}), ours), "leave gaps or overlap");
    says(with_grad(at::ones({4}, at::kComplexFloat), at::ones({4}, at::kComplexFloat), ours), "dtype ComplexFloat");
  }
  says(with_grad(at::ones({4}, at::kHalf), at::ones({4}, at::kHalf), false), "is fp16");
  EXPECT_EQ(with_grad(at::ones({4}, at::kHalf), at::ones({4}, at::kHalf), true), "no error");
  says(with_grad(at::ones({4, 4}), matrix.clone().t(), true), "strides [1, 4]");
  EXPECT_EQ(with_grad(at::ones({4, 4}).t(), matrix.clone().t(), true), "no error");
}

// The optimizers.

/// Steps of both on the same gradients; `ours` with gradients that are multiplied by the scale.
template <class Ours, class Theirs, class Options>
double distance(const Options &options, const std::function<bool(int, size_t)> &present) {
  constexpr int kSteps = 20;
  Tensors a = parameters(), b = copies_of(a);
  Ours ours(a, options);
  Theirs theirs(b, options);
  double worst = 0.0;
  for (int step = 0; step < kSteps; ++step) {
    set_grads(a, b, step, [&](size_t i) { return present(step, i); });
    ours.step();
    theirs.step();
    worst = std::max(worst, ulps(a, b, kSteps * options.lr()));
  }
  return worst;
}
bool all_present(int, size_t) { return true; }
/// Each parameter now and then, the last one from the fourth step on.
bool some_present(int step, size_t i) { return i == 2 ? step > 3 : (step + static_cast<int>(i)) % 3 != 0; }

TEST(TorchOptimizers, AreThoseOfLibtorch) {
  for (const auto present : {all_present, some_present}) {
    // The same bits where libtorch's formula is that of PyTorch in Python; else rounding of the moments.
    EXPECT_EQ((distance<gt::SGD, optim::SGD>(SGDOptions(0.1), present)), 0.0);
    EXPECT_EQ((distance<gt::SGD, optim::SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.5).weight_decay(0.1), present)),
              0.0);
    EXPECT_EQ((distance<gt::SGD, optim::SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true), present)), 0.0);
    EXPECT_LE((distance<gt::AdamW, optim::AdamW>(AdamWOptions(1e-3), present)), 4.0);
    EXPECT_LE((distance<gt::AdamW, optim::AdamW>(AdamWOptions(1e-3).amsgrad(true), present)), 4.0);
    EXPECT_LE((distance<gt::Adam, optim::Adam>(optim::AdamOptions(1e-3).weight_decay(0.1), present)), 4.0);
    EXPECT_LE(
        (distance<gt::Adagrad, optim::Adagrad>(optim::AdagradOptions(1e-2).initial_accumulator_value(0.1), present)),
        4.0);
    const optim::RMSpropOptions rmsprop = optim::RMSpropOptions(1e-3).alpha(0.9).weight_decay(0.1);
    for (const double momentum : {0.0, 0.9}) {
      for (const bool centered : {false, true}) {
        const auto options = optim::RMSpropOptions(rmsprop).momentum(momentum).centered(centered);
        EXPECT_LE((distance<gt::RMSprop, optim::RMSprop>(options, present)), 8.0);
      }
    }
  }
}

TEST(TorchOptimizers, GroupsAndSchedules) {
  Tensors a = parameters(), b = copies_of(a);
  const auto groups = [](const Tensors &tensors) {
    std::vector<optim::OptimizerParamGroup> made;
    made.emplace_back(Tensors{tensors[0]});
    made.emplace_back(Tensors{tensors[1], tensors[2]},
                      std::make_unique<SGDOptions>(SGDOptions(0.02).weight_decay(0.5)));
    return made;
  };
  gt::SGD ours(groups(a), SGDOptions(0.1).momentum(0.9));
  optim::SGD theirs(groups(b), SGDOptions(0.1).momentum(0.9));
  optim::StepLR our_schedule(ours, 2, 0.5), their_schedule(theirs, 2, 0.5);
  for (uint64_t step = 0; step < 7; ++step) {
    set_grads(a, b, step);
    ours.step();
    theirs.step();
    our_schedule.step();
    their_schedule.step();
    ASSERT_TRUE(same_bits(a, b)) << "step " << step;
  }
}

TEST(TorchOptimizers, RmspropFollowsAlpha) {
  Tensors a = parameters(), b = copies_of(a);
  gt::RMSprop ours(a, optim::RMSpropOptions(1e-3));
  optim::RMSprop theirs(b, optim::RMSpropOptions(1e-3));
  for (uint64_t step = 0; step < 4; ++step) {
    for (optim::Optimizer *optimizer : std::initializer_list<optim::Optimizer *>{&ours, &theirs}) {
      auto &options = static_cast<optim::RMSpropOptions &>(optimizer->param_groups()[0].options());
      options.alpha(step < 2 ? 0.99 : 0.5);
    }
    set_grads(a, b, step);
    ours.step();
    theirs.step();
  }
  EXPECT_LE(ulps(a, b, 4e-3), 8.0);
}

TEST(TorchOptimizers, HalfParametersHaveStateInFp32) {
  Tensors a = {at::ones({64}, at::kHalf).set_requires_grad(true)};
  gt::AdamW adamw(a, AdamWOptions(1e-2));
  a[0].mutable_grad() = at::full({64}, 1e-4, at::kHalf);
  adamw.step();
  const optim::AdamWParamState &state = state_of(adamw, a[0]);
  EXPECT_EQ(state.exp_avg().scalar_type(), at::kFloat);
  EXPECT_GT(state.exp_avg_sq().min().item<float>(), 0.0f);
  EXPECT_NEAR(a[0][0].item<float>(), 0.99f, 1e-3f);
}

TEST(TorchOptimizers, GraphsOfOldWeightsAreRefused) {
  Tensors a = {parameter({4}, 1)};
  gt::SGD sgd(a, SGDOptions(0.1));
  const at::Tensor old = (a[0] * a[0]).sum();
  old.backward({}, /*retain_graph=*/true);
  sgd.step();
  EXPECT_THROW(old.backward(), c10::Error);
}

TEST(TorchOptimizers, StateThatWasReplacedIsRefused) {
  Tensors a = parameters(), b = copies_of(a);
  gt::AdamW adamw(a, AdamWOptions(1e-3));
  set_grads(a, b, 1);
  adamw.step();
  adamw.state().clear();
  EXPECT_REFUSED(adamw.step(), "state of parameter 0 in group 0 was replaced");
}

// Both together.

/// Multiplies the gradients by the scale, as a backward pass would have.
void scale_grads(const gt::GradScaler &scaler, const Tensors &params) {
  for (const at::Tensor &param : params) {
    if (param.grad().defined()) param.grad().mul_(scaler.get_scale());
  }
}

TEST(TorchScaler, OneOverflowSkipsAllOfAnOptimizer) {
  gt::GradScaler scaler(at::kCPU);
  Tensors a = parameters(), b = copies_of(a);
  gt::SGD ours(a, SGDOptions(0.1).momentum(0.9).dampening(0.5));
  optim::SGD theirs(b, SGDOptions(0.1).momentum(0.9).dampening(0.5));
  for (int step = 0; step < 12; ++step) {
    // Parameters come and go, so that there are several cohorts; every fifth step overflows in one of them.
    set_grads(a, b, step, [&](size_t i) { return some_present(step, i); });
    scale_grads(scaler, a);
    const bool overflow = step % 5 == 2;
    if (overflow) a[1].mutable_grad() = at::full_like(a[1], INFINITY);
    if (step % 4 == 1) scaler.unscale_(ours);
    scaler.step(ours);
    scaler.update();
    if (!overflow) theirs.step();
    ASSERT_TRUE(same_bits(a, b)) << "step " << step;
  }
  EXPECT_EQ(scaler.get_scale(), 65536.0f / 4);
}

TEST(TorchScaler, ClipsAsLibtorchDoes) {
  for (const bool ours : {true, false}) {
    for (const int absent : {-1, 1}) {
      gt::GradScaler scaler(at::kCPU);
      Tensors a = parameters(), b = copies_of(a);
      const auto with = sgd_of(a, ours);
      optim::SGD without(b, SGDOptions(0.1));
      for (int step = 0; step < 3; ++step) {
        set_grads(a, b, step, [&](size_t i) { return step == 0 || static_cast<int>(i) != absent; });
        scale_grads(scaler, a);
        if (step == 1) scaler.unscale_(*with);
        scaler.clip_grad_norm_(*with, 1.0);
        scaler.step(*with);
        scaler.update();
        const double norm = torch::nn::utils::clip_grad_norm_(b, 1.0);
        EXPECT_NEAR(scaler.native().get_report_sync().grad_norm, norm, 1e-5 * norm);
        without.step();
        for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::allclose(a[i], b[i], 1e-5, 1e-6));
      }
    }
  }
  // Without a scale too.
  gt::GradScaler disabled(at::kCPU, {.enabled = false});
  Tensors a = {at::zeros({4}).set_requires_grad(true)};
  optim::SGD sgd(a, SGDOptions(1.0));
  a[0].mutable_grad() = at::full({4}, 10.0f);
  disabled.clip_grad_norm_(sgd, 1.0);
  disabled.step(sgd);
  EXPECT_NEAR(a[0].norm().item<float>(), 1.0f, 1e-5f);
}

TEST(TorchScaler, GradientsReplacedAfterUnscaling) {
  gt::GradScaler scaler(at::kCPU);
  Tensors a = parameters(), b = copies_of(a);
  gt::SGD ours(a, SGDOptions(0.1));
  set_grads(a, b, 1);
  scaler.unscale_(ours);
  a[1].mutable_grad() = a[1].grad() * 0.5;
  EXPECT_REFUSED(scaler.step(ours), "a gradient was replaced since unscale_()");
  EXPECT_TRUE(same_bits(a[1], b[1]));
}

/// What an optimizer of libtorch makes of these gradients without any scaling.
Tensors stepped(Tensors params, const Tensors &like) {
  for (size_t i = 0; i < params.size(); ++i) params[i].mutable_grad() = like[i].grad().clone();
  optim::SGD(params, SGDOptions(0.1)).step();
  return params;
}

/// Some parameters with scaled gradients, and what a step must make of them.
struct Work {
  Work(const gt::GradScaler &scaler, uint64_t seed) : params(parameters(seed)), expected(copies_of(params)) {
    set_grads(params, expected, seed);
    expected = stepped(expected, params);
    scale_grads(scaler, params);
  }
  testing::AssertionResult is_stepped() const { return same_bits(params, expected); }
  Tensors params, expected;
};

/// An optimizer may die in mid-iteration, and the next one may get its address.
template <class Sgd>
void optimizers_of_one_address() {
  gt::GradScaler scaler(at::kCPU);
  std::optional<Sgd> sgd;

  Work first(scaler, 1), second(scaler, 2), third(scaler, 3);
  first.params[0].mutable_grad()[0][0] = INFINITY;
  sgd.emplace(first.params, SGDOptions(0.1));
  scaler.step(*sgd);
  sgd.emplace(second.params, SGDOptions(0.1));
  scaler.step(*sgd);
  EXPECT_TRUE(second.is_stepped());
  sgd.emplace(third.params, SGDOptions(0.1));
  scaler.unscale_(*sgd);

  // Those of an optimizer that was unscaled must not pass for unscaled.
  Work fourth(scaler, 4);
  sgd.emplace(fourth.params, SGDOptions(0.1));
  scaler.step(*sgd);
  EXPECT_TRUE(fourth.is_stepped());

  // The same parameters are the same iteration, whichever optimizer is over them.
  sgd.emplace(fourth.params, SGDOptions(0.1));
  EXPECT_REFUSED(scaler.step(*sgd), "step() is called after step() on these parameters");
  EXPECT_REFUSED(scaler.unscale_(*sgd), "unscale_() is called after step() on these parameters");
  EXPECT_TRUE(fourth.is_stepped());

  // The overflow of the first, which is long gone, counts.
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 32768.0f);
  Work last(scaler, 5);
  sgd.emplace(last.params, SGDOptions(0.1));
  scaler.step(*sgd);
  scaler.update();
  EXPECT_TRUE(last.is_stepped());
}
TEST(TorchScaler, OptimizersOfOneAddress) { optimizers_of_one_address<optim::SGD>(); }
TEST(TorchScaler, FusedOptimizersOfOneAddress) { optimizers_of_one_address<gt::SGD>(); }

TEST(TorchScaler, NothingIsUnscaledTwice) {
  gt::GradScaler scaler(at::kCPU);
  Work work(scaler, 1);
  optim::SGD one(work.params, SGDOptions(0.1)), two({work.params[1]}, SGDOptions(0.1));
  gt::SGD fused({work.params[2]}, SGDOptions(0.1));
  scaler.unscale_(one);
  const char *twice = "gradient of parameter 0 in group 0 has already been unscaled";
  EXPECT_REFUSED(scaler.unscale_(two), twice);
  EXPECT_REFUSED(scaler.step(two), twice);
  EXPECT_REFUSED(scaler.step(fused), twice);
  scaler.step(one);
  EXPECT_REFUSED(scaler.step(two), twice);
  EXPECT_TRUE(work.is_stepped());
  scaler.update();
}

TEST(TorchScaler, NothingIsSteppedOnScaled) {
  gt::GradScaler scaler(at::kCPU);
  Work work(scaler, 1), late(scaler, 2);
  const Tensors before = copies_of(late.params);
  optim::SGD sgd(work.params, SGDOptions(0.1));
  scaler.unscale_(sgd);
  sgd.add_param_group(optim::OptimizerParamGroup(late.params));
  EXPECT_REFUSED(scaler.step(sgd), "gradient of parameter 0 in group 1 came after unscale_()");
  EXPECT_TRUE(same_bits(before, late.params));
  EXPECT_FALSE(work.is_stepped());
}

// Archives.

TEST(TorchArchives, ScalerContinues) {
  const gradscaler::ScalerOptions options{.init_scale = 1024.0f, .growth_interval = 3, .hysteresis = 2};
  gt::GradScaler one(at::kCPU, options), two(at::kCPU, options);
  Tensors a = parameters(), b = copies_of(a);
  optim::SGD sgd(a, SGDOptions(0.0));
  const auto iterate = [&](gt::GradScaler &scaler, int step) {
    set_grads(a, b, step);
    if (step % 4 == 1) a[0].mutable_grad().fill_(NAN);
    scaler.step(sgd);
    scaler.update();
  };
  for (int step = 0; step < 6; ++step) iterate(one, step);
  std::stringstream file;
  torch::save(one, file);
  torch::load(two, file);
  for (int step = 6; step < 20; ++step) {
    iterate(one, step);
    iterate(two, step);
    ASSERT_EQ(one.get_scale(), two.get_scale()) << "step " << step;
  }
  const gsc_scaler_state left = one.native().get_state_sync(), right = two.native().get_state_sync();
  EXPECT_EQ(std::memcmp(&left, &right, sizeof left), 0);

  gt::GradScaler disabled(at::kCPU, {.enabled = false});
  std::stringstream empty;
  torch::save(disabled, empty);
  EXPECT_REFUSED(torch::load(two, empty), "archive is of a disabled GradScaler");
  std::stringstream foreign;
  torch::save(sgd, foreign);
  EXPECT_REFUSED(torch::load(two, foreign), "archive is not of a GradScaler");
}

/// `steps` of one, an archive, and the other from there on, on the same gradients as `whole`, which does all of it.
template <class First, class Second, class Options>
double handed_over(const Options &options, int overflows, int steps = 5) {
  Tensors a = parameters(), b = copies_of(a);
  First first(a, options), whole(b, options);
  gt::GradScaler scaler(at::kCPU, {.init_scale = 1.0f}), same(at::kCPU, {.init_scale = 1.0f});
  const auto step_both = [&](optim::Optimizer &optimizer, int step) {
    set_grads(a, b, step, [&](size_t i) { return some_present(step, i); });
    if (step < overflows) a[0].mutable_grad() = b[0].mutable_grad() = at::full_like(a[0], INFINITY);
    scaler.step(optimizer);
    scaler.update(1.0f);
    same.step(whole);
    same.update(1.0f);
  };
  for (int step = 0; step < steps; ++step) step_both(first, step);
  std::stringstream file;
  torch::save(first, file);
  Second second(a, options);
  torch::load(second, file);
  double worst = 0.0;
  for (int step = steps; step < steps + 8; ++step) {
    step_both(second, step);
    worst = std::max(worst, ulps(a, b, (steps + 8) * options.lr()));
  }
  return worst;
}

TEST(TorchArchives, OptimizersOfBothKindsReadEachOther) {
  const AdamWOptions adamw = AdamWOptions(1e-2).weight_decay(0.1);
  EXPECT_EQ((handed_over<gt::AdamW, gt::AdamW>(adamw, 0)), 0.0);
  EXPECT_EQ((handed_over<gt::AdamW, gt::AdamW>(adamw, 2)), 0.0);
  EXPECT_LE((handed_over<gt::AdamW, optim::AdamW>(adamw, 1)), 4.0);
  EXPECT_LE((handed_over<optim::AdamW, gt::AdamW>(adamw, 1)), 4.0);
  const SGDOptions sgd = SGDOptions(0.1).momentum(0.9).dampening(0.5);
  EXPECT_EQ((handed_over<gt::SGD, optim::SGD>(sgd, 1)), 0.0);
  EXPECT_EQ((handed_over<optim::SGD, gt::SGD>(sgd, 1)), 0.0);
  // Nothing but skips: the first step is still to come.
  EXPECT_EQ((handed_over<gt::SGD, gt::SGD>(sgd, 2, /*steps=*/2)), 0.0);
  const auto adagrad = optim::AdagradOptions(1e-2).initial_accumulator_value(0.1);
  EXPECT_LE((handed_over<gt::Adagrad, optim::Adagrad>(adagrad, 1)), 4.0);
  EXPECT_LE((handed_over<optim::Adagrad, gt::Adagrad>(adagrad, 1)), 4.0);
  const auto rmsprop = optim::RMSpropOptions(1e-3).centered(true).momentum(0.9);
  EXPECT_LE((handed_over<gt::RMSprop, optim::RMSprop>(rmsprop, 1)), 8.0);
  EXPECT_LE((handed_over<optim::RMSprop, gt::RMSprop>(rmsprop, 1)), 8.0);
}

}  // namespace
