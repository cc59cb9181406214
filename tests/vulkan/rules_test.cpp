// SPDX-License-Identifier: Apache-2.0
// Every function of core/vulkan/rules.h that needs no memory, translated and run on a device, against the function itself:
// numbers of all magnitudes, inf, NaN, subnormals and both zeros. rules_calls.py makes the calls.
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>

#include "core/vulkan/kernels.h"
#include "tests/vulkan/device.h"
#include "tests/vulkan/rules_entries.h"

namespace gsc::vulkan {
namespace {

template <typename F>
struct Signature;
template <typename R, typename... P>
struct Signature<R(P...)> {
  using Parameters = std::tuple<P...>;
};
template <std::size_t I, typename F>
using Parameter = std::tuple_element_t<I, typename Signature<F>::Parameters>;

template <typename T>
T &at(char *from, std::size_t offset) {
  return *reinterpret_cast<T *>(from + offset);
}
template <typename T>
void put(char *to, std::size_t offset, const T &x) {
  std::memcpy(to + offset, &x, sizeof x);
}

/// A number in memory.
struct Leaf {
  std::string kind, name;
  std::size_t offset;
};
struct Call {
  const char *name;
  std::size_t from_bytes, to_bytes;
  std::vector<Leaf> from, to;
  void (*run)(char *from, char *to);
  const uint32_t *words;
  std::size_t words_bytes;
};

#include "rules_calls.inc"

constexpr int kRuns = 20000;
constexpr std::array<int32_t, 5> kStateDtypes = {GSC_FP32, GSC_BF16, GSC_FP8_E4M3, GSC_UINT8_LOG, GSC_UFP16_E6M10};

class Numbers {
 public:
  explicit Numbers(unsigned seed) : random_(seed) {}

  /// How the numbers of the next call are distributed.
  void begin() { mode_ = below(4); }

  double real(const std::string &name) {
    // Of learning rates and what belongs to them, as a step has them: other numbers would keep the CPU in a loop.
    if (name == "lr" || name == "lr_max" || name.starts_with("weight_"))
      return std::ldexp(1.0, -static_cast<int>(below(9)));
    static const std::array<double, 12> special = {0.0, -0.0,    1.0,     -1.0,    INFINITY, -INFINITY,
                                                   NAN, 65504.0, 65520.0, 0x1p-14, 0x1p-126, 0x1.fffffep127};
    if (mode_ == 0 || below(8) == 0) return special[below(special.size())];
    const double fraction = std::uniform_real_distribution<double>(1.0, 2.0)(random_);
    if (name.find("beta") != std::string::npos || name.find("decay") != std::string::npos || name == "alpha") {
      return 1.0 - std::ldexp(fraction, -1 - static_cast<int>(below(12)));
    }
    const int range = mode_ == 1 ? 160 : 12;
    return std::ldexp(below(2) == 0 ? fraction : -fraction, static_cast<int>(below(2 * range)) - range);
  }

  int64_t whole(const std::string &kind, const std::string &name) {
    if (name == "variant") return static_cast<int64_t>(below(kVariantCount));
    if (name == "dtype" || name == "src_dtype" || name == "dst_dtype") return 1 + static_cast<int64_t>(below(4));
    if (name == "state_dtype") return kStateDtypes[below(kStateDtypes.size())];
    if (name == "master") return GSC_MASTER_NONE + static_cast<int64_t>(below(4));
    if (name == "slot") return static_cast<int64_t>(below(3));
    if (name == "op") return static_cast<int64_t>(below(5));
    if (name == "step" || name.find("warmup") != std::string::npos) return 1 + static_cast<int64_t>(below(3000));
    if (name == "element") return static_cast<int64_t>(random_() >> 1);
    if (kind == "bool") return static_cast<int64_t>(below(2));
    if (kind[0] == 'i') return static_cast<int64_t>(below(1000)) - (below(2) == 0 ? 0 : 3);
    return static_cast<int64_t>(below(3) == 0 ? random_() >> below(64) : random_());
  }

  void fill(const Leaf &leaf, char *from) {
    char *p = from + leaf.offset;
    if (leaf.kind == "f32") {
      float x = static_cast<float>(real(leaf.name));
      if (mode_ == 2) x = from_bits(static_cast<uint32_t>(random_()));
      std::memcpy(p, &x, sizeof x);
    } else if (leaf.kind == "f64") {
      double x = real(leaf.name);
      if (mode_ == 2 && !leaf.name.starts_with("weight_") && !leaf.name.starts_with("lr")) x = from_bits(random_());
      std::memcpy(p, &x, sizeof x);
    } else {
      const int64_t x = whole(leaf.kind, leaf.name);
      std::memcpy(p, &x, leaf.kind == "bool" ? 1 : std::stoul(leaf.kind.substr(1)) / 8);
    }
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  std::mt19937_64 random_;
  std::size_t mode_ = 0;
};

std::string text_of(const Leaf &leaf, const char *p) {
  uint64_t bits = 0;
  std::memcpy(&bits, p + leaf.offset, leaf.kind == "bool" ? 1 : std::stoul(leaf.kind.substr(1)) / 8);
  char text[96];
  double value = static_cast<double>(static_cast<int64_t>(bits));
  if (leaf.kind == "f32") value = from_bits(static_cast<uint32_t>(bits));
  if (leaf.kind == "f64") value = from_bits(bits);
  std::snprintf(text, sizeof text, " %s=%.17g (%#llx)", leaf.name.c_str(), value,
                static_cast<unsigned long long>(bits));
  return text;
}

/// The payload of a NaN that results from two is the compiler's choice.
bool is_same(const Leaf &leaf, const char *a, const char *b) {
  if (leaf.kind == "f32" && std::isnan(at<float>(const_cast<char *>(a), leaf.offset))) {
    return std::isnan(at<float>(const_cast<char *>(b), leaf.offset));
  }
  if (leaf.kind == "f64" && std::isnan(at<double>(const_cast<char *>(a), leaf.offset))) {
    return std::isnan(at<double>(const_cast<char *>(b), leaf.offset));
  }
  const std::size_t bytes = leaf.kind == "bool" ? 1 : std::stoul(leaf.kind.substr(1)) / 8;
  return std::memcmp(a + leaf.offset, b + leaf.offset, bytes) == 0;
}

struct Arguments {
  const char *from;
  char *to;
  int32_t from_bytes, to_bytes, count, unused;
};

/// A call over all arguments.
void run_on_device(gsc_test::VulkanDevice &d, const Call &call, const Arguments &arguments) {
  VkShaderModuleCreateInfo module_info{};
  module_info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  module_info.codeSize = call.words_bytes;
  module_info.pCode = call.words;
  VkShaderModule module = nullptr;
  ASSERT_EQ(vkCreateShaderModule(d.device, &module_info, nullptr, &module), VK_SUCCESS);
  const VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 8};
  VkPipelineLayoutCreateInfo layout_info{};
  layout_info.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  layout_info.pushConstantRangeCount = 1;
  layout_info.pPushConstantRanges = &push;
  VkPipelineLayout layout = nullptr;
  ASSERT_EQ(vkCreatePipelineLayout(d.device, &layout_info, nullptr, &layout), VK_SUCCESS);
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.layout = layout;
  VkPipeline pipeline = nullptr;
  ASSERT_EQ(vkCreateComputePipelines(d.device, nullptr, 1, &info, nullptr, &pipeline), VK_SUCCESS);
  const gsc_test::DeviceBytes sent(sizeof arguments);
  gsc_test::copy_to_device(sent.data(), &arguments, sizeof arguments);
  VkCommandBuffer commands = d.make_commands();
  gsc_test::VulkanDevice::begin(commands);
  vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  const char *address = sent.data();
  vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, 8, &address);
  vkCmdDispatch(commands, static_cast<uint32_t>(arguments.count + 31) / 32, 1, 1);
  ASSERT_EQ(vkEndCommandBuffer(commands), VK_SUCCESS);
  d.submit({commands});
  d.wait();
  vkDestroyPipeline(d.device, pipeline, nullptr);
  vkDestroyPipelineLayout(d.device, layout, nullptr);
  vkDestroyShaderModule(d.device, module, nullptr);
}

class Rules : public testing::TestWithParam<int> {};

TEST_P(Rules, AreThoseOfTheCpu) {
  gsc_test::VulkanDevice *device = gsc_test::vulkan_device();
  if (device == nullptr) GTEST_SKIP() << "there is no Vulkan device";
  const Call &call = kCalls[GetParam()];
  std::vector<char> from(kRuns * call.from_bytes), wanted(kRuns * call.to_bytes), got(wanted.size());
  Numbers numbers(static_cast<unsigned>(GetParam()));
  for (int i = 0; i < kRuns; ++i) {
    numbers.begin();
    for (const Leaf &leaf : call.from) numbers.fill(leaf, from.data() + static_cast<std::size_t>(i) * call.from_bytes);
  }
  const gsc_test::DeviceBytes sent(static_cast<int64_t>(from.size()) + 1);
  const gsc_test::DeviceBytes received(static_cast<int64_t>(got.size()));
  gsc_test::copy_to_device(sent.data(), from.data(), static_cast<int64_t>(from.size()));
  const Arguments arguments = {sent.data(),
                               received.data(),
                               static_cast<int32_t>(call.from_bytes),
                               static_cast<int32_t>(call.to_bytes),
                               kRuns,
                               0};
  run_on_device(*device, call, arguments);
  gsc_test::copy_to_host(got.data(), received.data(), static_cast<int64_t>(got.size()));
  const std::vector<char> inputs = from;
  int failures = 0;
  for (std::size_t i = 0; i < kRuns && failures < 3; ++i) {
    call.run(from.data() + i * call.from_bytes, wanted.data() + i * call.to_bytes);
    for (const Leaf &leaf : call.to) {
      const char *a = wanted.data() + i * call.to_bytes;
      const char *b = got.data() + i * call.to_bytes;
      if (is_same(leaf, a, b)) continue;
      ++failures;
      std::string given;
      for (const Leaf &in : call.from) given += text_of(in, inputs.data() + i * call.from_bytes);
      ADD_FAILURE() << "wanted" << text_of(leaf, a) << " got" << text_of(leaf, b) << "\nof" << given;
      break;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Rules, testing::Range(0, static_cast<int>(std::size(kCalls))),
                         [](const testing::TestParamInfo<int> &info) { return std::string(kCalls[info.param].name); });

}  // namespace
}  // namespace gsc::vulkan
