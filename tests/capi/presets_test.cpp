// SPDX-License-Identifier: Apache-2.0
//
// Every preset against a model of the system it is named after (policy_models.h), over thousands of random updates at
// several overflow rates, with the intervals shortened so that growth happens often; and the numbers of each preset.
#include "policy_harness.h"
#include "tests/support/policy_models.h"

namespace gsc_test {
namespace {

struct Sequence {
  double rate;
  int32_t interval;
  int32_t hysteresis;
};

/// Runs the preset, changed by `s`, and the model, and compares the scale after every update.
template <typename MakeModel>
void expect_trajectory(int32_t preset, float init_scale, const Sequence &s, MakeModel &&make_model,
                       double tolerance = 0.0, int updates = 1500) {
  gsc_scaler_options options = preset_options(preset);
  options.init_scale = init_scale;
  options.growth_interval = s.interval;
  if (s.hysteresis > 0) options.hysteresis = s.hysteresis;
  options.overflow_tolerance = tolerance;
  Policy policy(options);
  auto model =
      make_model(ModelArguments{static_cast<double>(init_scale), s.interval, std::max(s.hysteresis, 1), tolerance});
  Random random(static_cast<uint64_t>(preset * 1000 + s.interval * 10 + s.hysteresis));
  for (int i = 0; i < updates; ++i) {
    // Bursts, so that both long clean runs and consecutive overflows occur.
    const bool overflow = random.uniform(0.0, 1.0) < (i / 50 % 2 == 0 ? s.rate : 2 * s.rate - s.rate * s.rate);
    policy.update(overflow);
    model.update(overflow);
    if (model.a.scale > 1e30 || model.a.scale < 1e-30) return;  // Far from the range where float and double agree.
    ASSERT_EQ(static_cast<double>(policy.scale()), model.a.scale)
        << "update " << i << ", rate " << s.rate << ", interval " << s.interval << ", hysteresis " << s.hysteresis;
  }
}

const std::vector<Sequence> kPlain = {{0.05, 7, 0}, {0.2, 3, 0}, {0.5, 1, 0}, {0.3, 2, 0}, {0.01, 20, 0}};

std::vector<Sequence> with_hysteresis(std::initializer_list<int32_t> values) {
  std::vector<Sequence> result;
  for (const int32_t hysteresis : values) {
    for (Sequence s : kPlain) {
      s.hysteresis = hysteresis;
      result.push_back(s);
    }
  }
  return result;
}

auto counting(bool guard, double least, double most) {
  return [=](const ModelArguments &a) { return CountingModel{a, guard, least, most}; };
}

TEST(Presets, Torch) {
  for (const Sequence &s : kPlain) expect_trajectory(GSC_PRESET_TORCH, 65536.0f, s, counting(true, 0, 0));
}
TEST(Presets, Apex) {
  for (const Sequence &s : kPlain) expect_trajectory(GSC_PRESET_APEX, 65536.0f, s, counting(false, 0, 16777216.0));
}
TEST(Presets, Keras) {
  for (const Sequence &s : kPlain) expect_trajectory(GSC_PRESET_KERAS, 32768.0f, s, counting(false, 0, 0));
}
TEST(Presets, TensorFlow) {
  for (const Sequence &s : kPlain) expect_trajectory(GSC_PRESET_TENSORFLOW, 32768.0f, s, counting(true, 1, 0));
}
TEST(Presets, OneFlow) {
  for (const Sequence &s : kPlain) {
    expect_trajectory(GSC_PRESET_ONEFLOW, 65536.0f, s,
                      counting(false, 1, static_cast<double>(std::numeric_limits<float>::max())));
  }
}
TEST(Presets, ApexHysteresis) {
  for (const Sequence &s : with_hysteresis({1, 2, 3})) {
    expect_trajectory(GSC_PRESET_APEX_HYSTERESIS, 65536.0f, s,
                      [](const ModelArguments &a) { return ApexHysteresisModel{a}; });
  }
}
TEST(Presets, Megatron) {
  for (const Sequence &s : with_hysteresis({1, 2, 4})) {
    expect_trajectory(GSC_PRESET_MEGATRON, 65536.0f, s, [](const ModelArguments &a) { return MegatronModel{a}; });
  }
}
TEST(Presets, ColossalAi) {
  for (const Sequence &s : with_hysteresis({1, 2, 3})) {
    expect_trajectory(GSC_PRESET_COLOSSALAI, 65536.0f, s, [](const ModelArguments &a) {
      return MegatronModel{a, 0.0};
    });
  }
}
TEST(Presets, DeepSpeed) {
  for (const Sequence &s : with_hysteresis({1, 2, 3})) {
    expect_trajectory(GSC_PRESET_DEEPSPEED, 65536.0f, s, [](const ModelArguments &a) { return DeepSpeedModel{a}; });
  }
}
TEST(Presets, Flax) {
  for (const Sequence &s : kPlain) {
    expect_trajectory(GSC_PRESET_FLAX, 65536.0f, s, [](const ModelArguments &a) { return FlaxModel{a}; });
  }
}
TEST(Presets, Jmp) {
  for (const Sequence &s : kPlain) {
    expect_trajectory(GSC_PRESET_JMP, 32768.0f, s, [](const ModelArguments &a) { return JmpModel{a}; });
  }
}
TEST(Presets, MindSpore) {
  for (const Sequence &s : kPlain) {
    expect_trajectory(GSC_PRESET_MINDSPORE, 32768.0f, s, [](const ModelArguments &a) { return JmpModel{a}; });
  }
}
TEST(Presets, Paddle) {
  // High above 1, where the Python class and the operator, which has a floor of 1, agree.
  for (const Sequence &s : with_hysteresis({1, 2, 3})) {
    expect_trajectory(
        GSC_PRESET_PADDLE, std::ldexp(1.0f, 60), s, [](const ModelArguments &a) { return PaddleModel{a}; }, 0.0, 100);
  }
}
TEST(Presets, Fairseq) {
  for (const double tolerance : {0.0, 0.1, 0.25, 0.5}) {
    for (const Sequence &s : kPlain) {
      // High above the floor, which is an error there.
      expect_trajectory(
          GSC_PRESET_FAIRSEQ, std::ldexp(1.0f, 60), s, [](const ModelArguments &a) { return FairseqModel{a}; },
          tolerance, 100);
    }
  }
}

TEST(Presets, DeepSpeedConsecutiveHysteresis) {
  gsc_scaler_options options = preset_options(GSC_PRESET_DEEPSPEED);
  options.init_scale = 65536.0f;
  options.growth_interval = 4;
  options.hysteresis = 3;
  options.hysteresis_refill = GSC_REFILL_ON_CLEAN_STEP;
  Policy policy(options);
  DeepSpeedModel model{{65536.0, 4, 3}, true};
  Random random(7);
  for (int i = 0; i < 1500; ++i) {
    const bool overflow = random.below(100) < 45;
    policy.update(overflow);
    model.update(overflow);
    ASSERT_EQ(static_cast<double>(policy.scale()), model.a.scale) << i;
  }
}

TEST(Presets, FlaxStopsAtTheLargestAndSmallestNormalFloat) {
  gsc_scaler_options options = preset_options(GSC_PRESET_FLAX);
  options.init_scale = std::ldexp(1.0f, 126);
  options.growth_interval = 1;
  Policy large(options);
  large.run("......");
  EXPECT_EQ(large.scale(), std::numeric_limits<float>::max());
  options.init_scale = std::ldexp(1.0f, -125);
  Policy small(options);
  small.run("xxxx");
  EXPECT_EQ(small.scale(), std::numeric_limits<float>::min());
}

TEST(Presets, FiniteGuards) {
  const auto grown = [](int32_t preset) {
    gsc_scaler_options options = preset_options(preset);
    options.init_scale = std::ldexp(1.0f, 127);
    options.growth_interval = 1;
    Policy policy(options);
    policy.run("..");  // DeepSpeed's first growth is one later.
    return policy.scale();
  };
  const float inf = std::numeric_limits<float>::infinity();
  for (const int32_t preset :
       {GSC_PRESET_TORCH, GSC_PRESET_TENSORFLOW, GSC_PRESET_JMP, GSC_PRESET_MINDSPORE, GSC_PRESET_APEX_HYSTERESIS}) {
    EXPECT_EQ(grown(preset), std::ldexp(1.0f, 127)) << preset;
  }
  for (const int32_t preset : {GSC_PRESET_KERAS, GSC_PRESET_MEGATRON, GSC_PRESET_DEEPSPEED}) {
    EXPECT_EQ(grown(preset), inf) << preset;
  }
}

TEST(Presets, FairseqErrsAtItsFloor) {
  gsc_scaler_options options = preset_options(GSC_PRESET_FAIRSEQ);
  options.init_scale = 3e-4f;
  Policy policy(options);
  policy.update(true);
  EXPECT_EQ(policy.scale(), 1.5e-4f);
  policy.update(true);
  EXPECT_EQ(policy.scale(), 1.5e-4f) << "half of it is at the floor or below: the old scale stays";
  gsc_report report;
  std::memset(&report, 0, sizeof report);
  report.struct_size = sizeof report;
  EXPECT_GSC_ERROR(gsc_scaler_get_report_sync(policy.get(), nullptr, &report, nullptr), GSC_ERROR_SCALE_FLOOR, "scale");
}

struct Numbers {
  int32_t preset;
  float init_scale;
  double growth, backoff;
  int32_t interval, hysteresis;
  float min_scale, max_scale;
};

TEST(Presets, Numbers) {
  const float largest = std::numeric_limits<float>::max();
  const Numbers table[] = {
      {GSC_PRESET_TORCH, 65536, 2, .5, 2000, 1, 0, 0},
      {GSC_PRESET_APEX, 65536, 2, .5, 2000, 1, 0, 16777216},
      {GSC_PRESET_MEGATRON, 4294967296.0f, 2, .5, 1000, 2, 1, 0},
      {GSC_PRESET_DEEPSPEED, 65536, 2, .5, 1000, 2, 1, 0},
      {GSC_PRESET_TENSORFLOW, 32768, 2, .5, 2000, 1, 1, 0},
      {GSC_PRESET_KERAS, 32768, 2, .5, 2000, 1, 0, 0},
      {GSC_PRESET_FLAX, 65536, 2, .5, 2000, 1, std::numeric_limits<float>::min(), largest},
      {GSC_PRESET_JMP, 32768, 2, .5, 2000, 1, 1, 0},
      {GSC_PRESET_FAIRSEQ, 32768, 2, .5, 2000, 1, 1e-4f, 0},
      {GSC_PRESET_ONEFLOW, 65536, 2, .5, 2000, 1, 1, largest},
      {GSC_PRESET_COLOSSALAI, 65536, 2, .5, 1000, 2, 0, 0},
  };
  for (const Numbers &n : table) {
    SCOPED_TRACE(n.preset);
    const gsc_scaler_options o = preset_options(n.preset);
    EXPECT_EQ(o.struct_size, sizeof o);
    EXPECT_EQ(o.init_scale, n.init_scale);
    EXPECT_EQ(o.growth_factor, n.growth);
    EXPECT_EQ(o.backoff_factor, n.backoff);
    EXPECT_EQ(o.growth_interval, n.interval);
    EXPECT_EQ(o.hysteresis, n.hysteresis);
    EXPECT_EQ(o.min_scale, n.min_scale);
    EXPECT_EQ(o.max_scale, n.max_scale);
    EXPECT_EQ(o.enabled, 1);
  }
  const gsc_scaler_options torch = preset_options(GSC_PRESET_TORCH);
  const gsc_scaler_options defaults = GSC_SCALER_OPTIONS_INIT;
  EXPECT_EQ(torch.init_scale, defaults.init_scale);
  EXPECT_EQ(torch.growth_interval, defaults.growth_interval);
}

}  // namespace
}  // namespace gsc_test
