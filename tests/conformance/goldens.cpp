// SPDX-License-Identifier: Apache-2.0
//
// Replays the golden trajectories: every update of every run that scripts/conformance recorded from another system must
// leave the library's scale at the same fp32 bits. An overflow is an inf in a gradient, as in training; a clean update
// has the gradient 1. The format is described in README.md. An unknown key or word is an exception, which fails the test.
#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <variant>

#include "tests/support/objects.h"

namespace gsc_test {
namespace {

using Json = nlohmann::ordered_json;

/// The constant of the header that a word names: "on_growth" of GSC_REFILL_ is GSC_REFILL_ON_GROWTH.
int32_t constant(std::string prefix, const std::string &word) {
  static const std::map<std::string, int64_t> all = {
#define GSC_LAYOUT_SIZE(size)
#define GSC_LAYOUT_FIELD(field, offset)
#define GSC_LAYOUT_VALUE(name, value) {#name, value},
#include "tests/abi/layout.inc"
  };
  for (const unsigned char c : word) prefix += static_cast<char>(std::toupper(c));
  return static_cast<int32_t>(all.at(prefix));
}

void read_option(gsc_scaler_options &o, const std::string &key, const Json &value) {
  if (key == "hysteresis_refill") {
    o.hysteresis_refill = constant("GSC_REFILL_", value.get<std::string>());
  } else if (key == "flags") {
    o.flags = 0;
    for (const Json &flag : value) {
      o.flags |= static_cast<uint32_t>(constant("GSC_SCALER_", flag.get<std::string>()));
    }
  } else {
    const std::map<std::string, std::variant<float *, double *, int32_t *>> numbers = {
        {"init_scale", &o.init_scale},         {"min_scale", &o.min_scale},
        {"max_scale", &o.max_scale},           {"growth_factor", &o.growth_factor},
        {"backoff_factor", &o.backoff_factor}, {"growth_interval", &o.growth_interval},
        {"hysteresis", &o.hysteresis},         {"overflow_tolerance", &o.overflow_tolerance},
    };
    std::visit([&](auto *field) { value.get_to(*field); }, numbers.at(key));
  }
}

/// A power of two by its exponent, anything else by its bits.
float decode_scale(const Json &value) {
  if (!value.is_string()) return std::ldexp(1.0F, value.get<int>());
  return std::bit_cast<float>(static_cast<uint32_t>(std::stoul(value.get<std::string>(), nullptr, 16)));
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
    for (int64_t i = 0; i < length.get<int64_t>(); ++i, ++update) {
      if (left == 0) {
        ASSERT_LT(next, scales.size()) << "the trajectory is shorter than the run";
        expected = decode_scale(scales[next]);
        left = held[next++].get<int64_t>();
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
                         [](const auto &info) { return info.param.stem().string(); });

TEST_P(Golden, SameTrajectory) {
  try {
    std::ifstream stream(GetParam());
    const Json file = Json::parse(stream);
    const gsc_scaler_options base = preset_options(constant("GSC_PRESET_", file.at("preset").get<std::string>()));
    ASSERT_FALSE(file.at("runs").empty()) << "a golden without runs proves nothing";
    for (const Json &run : file.at("runs")) {
      SCOPED_TRACE(text(run.at("case").get<std::string>(), ", seed ", run.at("seed").get<int64_t>()));
      replay(run, base);
      if (HasFailure()) return;
    }
  } catch (const std::exception &e) {
    FAIL() << GetParam().filename() << ": " << e.what();
  }
}

}  // namespace
}  // namespace gsc_test
