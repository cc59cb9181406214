// SPDX-License-Identifier: Apache-2.0
//
// Formats of the optimizer state in the libtorch adapter: training, archives, conversion, groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <gradscaler/adapters/torch.hpp>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/adapters/torch/refused.h"
#include "tests/adapters/torch/tensors.h"

namespace {

namespace gt = gradscaler::torch;
namespace optim = torch::optim;
using optim::AdamWOptions;
using optim::SGDOptions;

struct Format {
  gradscaler::StateFormat state;
  gradscaler::MasterFormat master;
  gt::StateOptions options() const { return gt::StateOptions().state_format(state).master_format(master).seed(7); }
};
std::vector<Format> formats() {
  using enum gradscaler::StateFormat;
  using gradscaler::MasterFormat;
  std::vector<Format> found;
  for (const auto state : {full, bits16, bits8}) {
    for (const auto master :
         {MasterFormat::none, MasterFormat::split16, MasterFormat::split8, MasterFormat::stochastic}) {
      found.push_back({state, master});
    }
  }
  return found;
}

constexpr Format kSmall = {gradscaler::StateFormat::bits8, gradscaler::MasterFormat::split16};

std::string archive_of(const optim::Optimizer &optimizer) {
  std::stringstream file;
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  archive.save_to(file);
  return file.str();
}
void load_archive(optim::Optimizer &optimizer, const std::string &bytes) {
  std::stringstream file(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  optimizer.load(archive);
}

/// bf16 weights that go to a target: rows that are whole groups of 32, rows that are not, and a transposed matrix.
struct Problem {
  Tensors params = {bf16({33, 7}), bf16({2, 64}), bf16({5, 8}).t()};
  static at::Tensor bf16(at::IntArrayRef sizes) { return at::zeros(sizes, at::kBFloat16); }
  Problem() {
    for (at::Tensor &param : params) param = param.detach().set_requires_grad(true);
  }
  static at::Tensor target(const at::Tensor &param) { return at::linspace(-1, 1, param.numel()).view(param.sizes()); }
  void set_grads(double scale = 1.0) {
    for (at::Tensor &param : params) {
      const at::Tensor error = param.detach().to(at::kFloat) - target(param);
      param.mutable_grad() = at::empty_like(param.detach()).copy_(error * scale);
    }
  }
  double error() const {
    double worst = 0.0;
    for (const at::Tensor &param : params) {
      worst = std::max(worst, (param.detach().to(at::kFloat) - target(param)).abs().max().item<double>());
    }
    return worst;
  }
  void run(optim::Optimizer &optimizer, int steps) {
    for (int step = 0; step < steps; ++step) {
      set_grads();
      optimizer.step();
    }
  }
  void take(const Problem &other) {
    for (size_t i = 0; i < params.size(); ++i) params[i].detach().copy_(other.params[i].detach());
  }
};

template <class Optimizer, class Options>
void train_save_load_convert(const Options &options, double tolerance) {
  for (const Format &format : formats()) {
    SCOPED_TRACE(testing::Message() << "state " << static_cast<int>(format.state) << ", master "
                                    << static_cast<int>(format.master));
    Problem problem, again;
    Optimizer optimizer(problem.params, options, format.options());
    problem.run(optimizer, 100);
    EXPECT_LE(problem.error(), tolerance);

    /// Whether an optimizer of the same format continues from the archive of `from` with the same bits.
    const auto continues = [&](const optim::Optimizer &from, int steps) {
      Optimizer loaded(again.params, options, format.options());
      load_archive(loaded, archive_of(from));
      again.take(problem);
      problem.run(optimizer, steps);
      again.run(loaded, steps);
      return same_bits(again.params, problem.params);
    };
    ASSERT_TRUE(continues(optimizer, 3));

    // Of another one it is converted, and back again without a loss where fp32 is between them.
    for (const Format &other : formats()) {
      Problem converted;
      Optimizer second(converted.params, options, other.options());
      load_archive(second, archive_of(optimizer));
      converted.take(problem);
      converted.run(second, 20);
      EXPECT_LE(converted.error(), tolerance);
    }
    Problem wide;
    Optimizer full(wide.params, options, Format{gradscaler::StateFormat::full, format.master}.options());
    load_archive(full, archive_of(optimizer));
    wide.take(problem);
    wide.set_grads();
    full.prepare();
    EXPECT_TRUE(continues(full, 1));
  }
}

TEST(TorchFormats, TrainSaveLoadConvert) {
  train_save_load_convert<gt::AdamW>(AdamWOptions(2e-2).weight_decay(0.0), 0.06);
  train_save_load_convert<gt::SGD>(SGDOptions(0.1).momentum(0.8), 0.06);
  train_save_load_convert<gt::RMSprop>(optim::RMSpropOptions(1e-2).momentum(0.5), 0.1);
}

TEST(TorchFormats, StateIsInTensors) {
  Problem problem;
  gt::AdamW adamw(problem.params, AdamWOptions(1e-2), kSmall.options());
  problem.run(adamw, 2);
  const optim::AdamWParamState &state = state_of(adamw, problem.params[2]);
  EXPECT_EQ(state.exp_avg().scalar_type(), at::kByte);
  EXPECT_EQ(state.exp_avg_sq().sizes(), problem.params[2].sizes());
  EXPECT_EQ(state.exp_avg_sq().strides(), problem.params[2].strides());
  // Loaded into fp32 state, it is an archive of libtorch's class.
  Problem other;
  gt::AdamW full(other.params, AdamWOptions(1e-2));
  load_archive(full, archive_of(adamw));
  other.set_grads();
  full.prepare();
  optim::AdamW theirs(other.params, AdamWOptions(1e-2));
  load_archive(theirs, archive_of(full));
  other.run(theirs, 1);
  EXPECT_LT(other.error(), 1.0);
  // And codes whose scales are lost are refused.
  adamw.state().at(problem.params[2].unsafeGetTensorImpl()) = std::make_unique<optim::AdamWParamState>(state);
  EXPECT_REFUSED(adamw.step(), "state of parameter 2 in group 0 has exp_avg in codes, but not 2 scales of Byte");
}

/// Of a state, which has the scales in a map.
at::Tensor &scales_of(optim::Optimizer &optimizer, const at::Tensor &param, const char *name) {
  auto &state = *optimizer.state().at(param.unsafeGetTensorImpl());
  return dynamic_cast<gt::detail::FormatState<optim::AdamWParamState> &>(state).added.at(name);
}

TEST(TorchFormats, ScalesAreThoseOfTheCode) {
  Problem problem;
  gt::AdamW adamw(problem.params, AdamWOptions(1e-2), kSmall.options());
  problem.run(adamw, 2);
  EXPECT_EQ(scales_of(adamw, problem.params[0], "exp_avg_scale").scalar_type(), at::kByte);
  EXPECT_EQ(scales_of(adamw, problem.params[0], "exp_avg_sq_scale").scalar_type(), at::kShort);
  at::Tensor &scales = scales_of(adamw, problem.params[0], "exp_avg_sq_scale");
  scales = scales.to(at::kByte);
  EXPECT_REFUSED(adamw.step(), "state of parameter 0 in group 0 has exp_avg_sq in codes, but not 8 scales of Short");
}

TEST(TorchFormats, SquaresOfAnEarlierVersionAreRefused) {
  for (const auto from : {gradscaler::StateFormat::bits16, gradscaler::StateFormat::bits8}) {
    Problem problem;
    gt::AdamW adamw(problem.params, AdamWOptions(1e-2), gt::StateOptions().state_format(from));
    problem.run(adamw, 2);
    auto &state = *adamw.state().at(problem.params[0].unsafeGetTensorImpl());
    dynamic_cast<gt::detail::FormatState<optim::AdamWParamState> &>(state).has_earlier_codes = true;
    for (const Format &format : formats()) {
      Problem other;
      gt::AdamW loaded(other.params, AdamWOptions(1e-2), format.options());
      load_archive(loaded, archive_of(adamw));
      other.set_grads();
      EXPECT_REFUSED(loaded.prepare(), "state of parameter 0 in group 0 has exp_avg_sq in codes of an earlier version");
    }
  }
  // Means are what they were.
  Problem problem, other;
  gt::SGD sgd(problem.params, SGDOptions(0.1).momentum(0.8), kSmall.options());
  gt::SGD loaded(other.params, SGDOptions(0.1).momentum(0.8), kSmall.options());
  problem.run(sgd, 2);
  auto &state = *sgd.state().at(problem.params[0].unsafeGetTensorImpl());
  dynamic_cast<gt::detail::FormatState<optim::SGDParamState> &>(state).has_earlier_codes = true;
  load_archive(loaded, archive_of(sgd));
  other.run(loaded, 1);
}

TEST(TorchFormats, SquaresBesideTheirMaximumHave16Bits) {
  for (const Format &format : {kSmall, Format{gradscaler::StateFormat::bits8, gradscaler::MasterFormat::none}}) {
    Problem problem, other;
    gt::AdamW adamw(problem.params, AdamWOptions(1e-2).amsgrad(true), format.options());
    problem.run(adamw, 2);
    const optim::AdamWParamState &state = state_of(adamw, problem.params[1]);
    EXPECT_EQ(state.exp_avg().scalar_type(), at::kByte);
    EXPECT_EQ(state.exp_avg_sq().scalar_type(), at::kShort);
    EXPECT_EQ(state.max_exp_avg_sq().scalar_type(), at::kShort);
    EXPECT_EQ(scales_of(adamw, problem.params[1], "max_exp_avg_sq_scale").scalar_type(), at::kByte);
    // Without it, and with it again.
    gt::AdamW loaded(other.params, AdamWOptions(1e-2), format.options());
    load_archive(loaded, archive_of(adamw));
    other.take(problem);
    static_cast<AdamWOptions &>(loaded.param_groups()[0].options()).amsgrad(false);
    other.run(loaded, 1);
    EXPECT_EQ(state_of(loaded, other.params[1]).exp_avg_sq().scalar_type(), at::kByte);
    gt::AdamW again(problem.params, AdamWOptions(1e-2), format.options());
    load_archive(again, archive_of(loaded));
    problem.take(other);
    static_cast<AdamWOptions &>(again.param_groups()[0].options()).amsgrad(true);
    problem.run(again, 1);
    EXPECT_EQ(state_of(again, problem.params[1]).exp_avg_sq().scalar_type(), at::kShort);
  }
}

TEST(TorchFormats, SlowMeansHaveNoCodesIn8Bits) {
  const auto betas = [](double beta1) { return std::make_tuple(beta1, 0.99); };
  const auto mean = [](optim::AdamW &optimizer, const Problem &problem) {
    return state_of(optimizer, problem.params[1]).exp_avg().scalar_type();
  };
  Problem problem, other;
  gt::AdamW adamw(problem.params, AdamWOptions(1e-2).betas(betas(0.999)), kSmall.options());
  problem.run(adamw, 2);
  EXPECT_EQ(mean(adamw, problem), at::kBFloat16);
  EXPECT_EQ(state_of(adamw, problem.params[1]).exp_avg_sq().scalar_type(), at::kByte);
  // The format stays when the betas change.
  auto &options = static_cast<AdamWOptions &>(adamw.param_groups()[0].options());
  options.betas(betas(0.9));
  problem.run(adamw, 2);
  EXPECT_EQ(mean(adamw, problem), at::kBFloat16);
  // Loaded, it goes by those that were saved, and back into codes by others.
  gt::AdamW loaded(other.params, AdamWOptions(1e-2).betas(betas(0.999)), kSmall.options());
  load_archive(loaded, archive_of(adamw));
  other.take(problem);
  other.run(loaded, 1);
  EXPECT_EQ(mean(loaded, other), at::kByte);
  static_cast<AdamWOptions &>(loaded.param_groups()[0].options()).betas(betas(0.999));
  other.run(loaded, 1);
  EXPECT_EQ(mean(loaded, other), at::kByte);
  load_archive(loaded, archive_of(loaded));
  other.run(loaded, 1);
  EXPECT_EQ(mean(loaded, other), at::kBFloat16);
}

TEST(TorchFormats, GroupsHaveTheirOwn) {
  Tensors wide = parameters();
  Problem problem;
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(problem.params);
  groups.emplace_back(wide);
  gt::AdamW adamw(std::move(groups), AdamWOptions(1e-2), kSmall.options());
  for (at::Tensor &param : wide) param.mutable_grad() = at::ones_like(param.detach());
  problem.set_grads();
  EXPECT_REFUSED(adamw.step(), "value of parameter 0 in group 1 is Float, but masters are those of Half and BFloat16");
  adamw.state_options(1, gt::StateOptions());
  problem.run(adamw, 3);
  const optim::AdamWParamState &state = state_of(adamw, wide[0]);
  EXPECT_EQ(state.exp_avg().scalar_type(), at::kFloat);
  EXPECT_EQ(state.step(), 0);
  // Another format in the midst of training; the steps stay.
  adamw.state_options(1, gt::StateOptions().state_format(gradscaler::StateFormat::bits16));
  problem.run(adamw, 1);
  const optim::AdamWParamState &now = state_of(adamw, wide[0]);
  EXPECT_EQ(now.exp_avg().scalar_type(), at::kBFloat16);
  EXPECT_EQ(now.step(), 3);
  Tensors doubles = {at::ones({4}, at::kDouble).set_requires_grad(true)};
  doubles[0].mutable_grad() = at::ones({4}, at::kDouble);
  gt::SGD sgd(doubles, SGDOptions(0.1).momentum(0.9), gt::StateOptions().state_format(gradscaler::StateFormat::bits8));
  EXPECT_REFUSED(sgd.step(), "value of parameter 0 in group 0 is Double");
}

/// The random bits of a parameter depend on its place in the optimizer, not on which others have gradients.
TEST(TorchFormats, AbsentGradientsDoNotMoveTheRandomBits) {
  const Format format{gradscaler::StateFormat::bits8, gradscaler::MasterFormat::stochastic};
  Problem one, two;
  gt::AdamW whole(one.params, AdamWOptions(1e-2), format.options());
  gt::AdamW part(two.params, AdamWOptions(1e-2), format.options());
  for (int step = 0; step < 5; ++step) {
    one.set_grads();
    two.set_grads();
    two.params[0].mutable_grad() = at::Tensor();
    whole.step();
    part.step();
  }
  EXPECT_TRUE(same_bits(one.params[1], two.params[1]));
  EXPECT_TRUE(same_bits(one.params[2], two.params[2]));
}

}  // namespace
