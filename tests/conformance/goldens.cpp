// SPDX-License-Identifier: Apache-2.0
//
// Replays the golden trajectories: every update of every run that scripts/conformance recorded from another system must
// leave the library's scale at the same fp32 bits. An overflow is an inf in a gradient, as in training; a clean update
// has the gradient 1. The format is described in README.md.
#include <bit>
#include <cmath>

#include "files.h"
#include "options.h"

namespace gsc_test {
namespace {

/// A power of two by its exponent, anything else by its bits.
float decode_scale(const Json &value) {
  if (!value.is_string()) return std::ldexp(1.0F, static_cast<int>(integer(value)));
  return std::bit_cast<float>(static_cast<uint32_t>(std::stoul(word(value), nullptr, 16)));
}

class Replay {
 public:
  explicit Replay(const gsc_scaler_options &options)
      : context_(make_context()), scaler_(make_scaler(context_, options)) {
    list_ = make_list(context_, {GSC_TENSOR_INIT(&gradient_, 1, GSC_FP32)});
  }

  /// The scale after one iteration.
  float update(bool overflow) {
    gradient_ = overflow ? INFINITY : 1.0F;
    EXPECT_GSC_OK(gsc_scaler_check(scaler_.get(), list_.get(), nullptr));
    EXPECT_GSC_OK(gsc_scaler_update(scaler_.get(), nullptr));
    return scale_of(scaler_);
  }

 private:
  Context context_;
  Scaler scaler_;
  List list_;
  float gradient_ = 0.0F;
};

void replay(const Json &run, const gsc_scaler_options &base) {
  gsc_scaler_options options = base;
  for (const auto &[key, value] : run.at("options").items()) read_option(options, key, value);
  Replay library(options);
  const Json &scales = run.at("scale");
  const Json &held = run.at("held");
  ASSERT_EQ(scales.size(), held.size());
  int64_t update = 0;
  int64_t left = 0;
  size_t next = 0;
  float expected = NAN;
  bool overflow = false;
  for (const Json &length : run.at("overflow")) {
    for (int64_t i = 0; i < integer(length); ++i, ++update) {
      if (left == 0) {
        ASSERT_LT(next, scales.size()) << "the trajectory is shorter than the run";
        expected = decode_scale(scales[next]);
        left = integer(held[next++]);
      }
      --left;
      const float scale = library.update(overflow);
      ASSERT_EQ(std::bit_cast<uint32_t>(scale), std::bit_cast<uint32_t>(expected))
          << "update " << update << ": scale " << scale << ", the original has " << expected;
    }
    overflow = !overflow;
  }
  ASSERT_EQ(next, scales.size()) << "the run is shorter than its trajectory";
  ASSERT_EQ(left, 0) << "the run is shorter than its trajectory";
}

std::vector<std::filesystem::path> golden_files() {
  const std::filesystem::directory_iterator folder(GSC_GOLDENS);
  std::vector<std::filesystem::path> files(begin(folder), end(folder));
  std::sort(files.begin(), files.end());
  return files;
}

class Golden : public ::testing::TestWithParam<std::filesystem::path> {};
INSTANTIATE_TEST_SUITE_P(Conformance, Golden, ::testing::ValuesIn(golden_files()),
                         [](const auto &info) { return test_name(info.param.stem().string()); });

TEST_P(Golden, SameTrajectory) {
  try {
    const Json file = read_json(GetParam());
    const gsc_scaler_options base = preset_options(constant("GSC_PRESET_", word(file.at("preset"))));
    ASSERT_FALSE(file.at("runs").empty()) << "a golden without runs proves nothing";
    for (const Json &run : file.at("runs")) {
      SCOPED_TRACE(text(word(run.at("case")), ", seed ", integer(run.at("seed"))));
      replay(run, base);
      if (HasFailure()) return;
    }
  } catch (const std::exception &e) {
    FAIL() << GetParam().filename() << ": " << e.what();
  }
}

}  // namespace
}  // namespace gsc_test
