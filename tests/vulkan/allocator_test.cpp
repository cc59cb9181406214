// SPDX-License-Identifier: Apache-2.0
//
// Device memory by the caller's allocator: the same results, everything given back, and an error for each way in which
// the callback can fail.
#include <functional>
#include <new>
#include <stdexcept>

#include "tests/cuda/twin.h"
#include "tests/vulkan/wrapped.h"

namespace gsc_test {
namespace {

/// Buffers whose addresses have no more alignment than the device requires.
class Allocator {
 public:
  gsc_vulkan_device with(gsc_vulkan_device handles) {
    handles.allocate = [](void *user, const void *info, int32_t mapped, gsc_vulkan_buffer *out) -> int32_t {
      Allocator &self = *static_cast<Allocator *>(user);
      if (const int32_t refused = self.refuse(); refused != VK_SUCCESS) return refused;
      *out = vulkan_device()->make_buffer(*static_cast<const VkBufferCreateInfo *>(info), mapped != 0, true);
      ++self.made;
      ++self.live;
      self.spoil(*out);
      return VK_SUCCESS;
    };
    handles.release = [](void *user, const gsc_vulkan_buffer *buffer) {
      vulkan_device()->destroy(*buffer);
      --static_cast<Allocator *>(user)->live;
    };
    handles.allocator_user = this;
    return handles;
  }
  /// Called before each buffer is made, and with it.
  std::function<int32_t()> refuse = [] { return VK_SUCCESS; };
  std::function<void(gsc_vulkan_buffer &)> spoil = [](gsc_vulkan_buffer &) {};
  int made = 0, live = 0;
};

std::vector<char> after_steps(const gsc_vulkan_device &handles) {
  const Context context = make_context(options_of(handles));
  Random random(5);
  Twin p(GSC_FP32, 700000), g(GSC_FP16, 700000);
  for (Twin *twin : {&p, &g}) twin->fill(Values::kOrdinary, random);
  const List params = make_list(context, {p.device_tensor()}), grads = make_list(context, {g.device_tensor()});
  const Scaler scaler = make_scaler(context, 16.0F);
  const Optimizer optimizer = make_optimizer(context, optimizer_options(GSC_LAMB), params, grads);
  for (int step = 0; step < 2; ++step) EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler, optimizer, nullptr));
  std::vector<char> all = p.image();
  for (const unsigned char byte : saved_image(optimizer)) all.push_back(static_cast<char>(byte));
  return all;
}

class Allocators : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_DEVICE(); }
};

TEST_F(Allocators, OfTheCallerHoldAllMemory) {
  Allocator allocator;
  Wrapped wrapped;  // the functions that the library finds
  const std::vector<char> expected = after_steps(wrapped.handles());
  const int before = wrapped.allocations;
  EXPECT_TRUE(after_steps(allocator.with(wrapped.handles())) == expected);
  EXPECT_EQ(wrapped.allocations, before);
  EXPECT_GT(allocator.made, 2);  // mapped, and more than one block
  EXPECT_EQ(allocator.live, 0);
}

TEST_F(Allocators, OfTheCallerMustReturnABuffer) {
  const std::pair<std::function<void(gsc_vulkan_buffer &)>, const char *> cases[] = {
      {[](gsc_vulkan_buffer &b) { b.address = 0; }, "without an address"},
      {[](gsc_vulkan_buffer &b) { b.address += 8; }, "is not aligned to 16 bytes"},
      {[](gsc_vulkan_buffer &b) { b.mapped = nullptr; }, "without a mapped address"}};
  for (const auto &[spoil, why] : cases) {
    Allocator allocator;
    allocator.spoil = spoil;
    const gsc_vulkan_device handles = allocator.with(vulkan_device()->handles());
    const gsc_context_options options = options_of(handles);
    gsc_context *made = nullptr;
    EXPECT_GSC_ERROR(gsc_context_create(&options, &made), GSC_ERROR_CALLBACK, "options.vulkan.allocate", why);
    EXPECT_EQ(allocator.live, 0);
  }
}

/// An error of the call, which can be tried again.
TEST_F(Allocators, OfTheCallerMayFail) {
  Allocator allocator;
  const gsc_vulkan_device handles = allocator.with(vulkan_device()->handles());
  {
    const Context context = make_context(options_of(handles));
    Twin p(GSC_FP32, 3 << 20), g(GSC_FP32, 3 << 20);
    const List params = make_list(context, {p.device_tensor()}), grads = make_list(context, {g.device_tensor()});
    const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
    const auto create = [&] {
      gsc_optimizer *made = nullptr;
      const gsc_status status =
          gsc_optimizer_create(context.get(), &options, params.get(), grads.get(), nullptr, nullptr, 0, &made);
      gsc_optimizer_destroy(made);
      return status;
    };
    allocator.refuse = []() -> int32_t { return VK_ERROR_OUT_OF_DEVICE_MEMORY; };
    EXPECT_GSC_ERROR(create(), GSC_ERROR_OUT_OF_MEMORY, "options.vulkan.allocate", "VK_ERROR_OUT_OF_DEVICE_MEMORY");
    allocator.refuse = []() -> int32_t { throw std::bad_alloc(); };
    EXPECT_EQ(create(), GSC_ERROR_OUT_OF_MEMORY);
    allocator.refuse = []() -> int32_t { throw std::runtime_error("none"); };
    EXPECT_GSC_ERROR(create(), GSC_ERROR_CALLBACK, "options.vulkan.allocate", "threw an exception");
    allocator.refuse = [] { return VK_SUCCESS; };
    EXPECT_GSC_OK(create());
  }
  EXPECT_EQ(allocator.live, 0);
}

}  // namespace
}  // namespace gsc_test
