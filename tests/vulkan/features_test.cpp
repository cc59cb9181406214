// SPDX-License-Identifier: Apache-2.0
//
// A device that lacks something is refused in a sentence that names it, and so are handles that are missing. A context
// to which no device is given opens one, and works.
#include <functional>

#include "tests/cuda/twin.h"
#include "tests/vulkan/wrapped.h"

namespace gsc_test {
namespace {

class Features : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_DEVICE(); }
  static gsc_status open(const gsc_vulkan_device &handles) {
    const gsc_context_options options = options_of(handles);
    gsc_context *made = nullptr;
    const gsc_status status = gsc_context_create(&options, &made);
    EXPECT_EQ(made != nullptr, status == GSC_OK);
    gsc_context_destroy(made);
    return status;
  }
};

TEST_F(Features, ThoseThatWereNotEnabledAreNamed) {
  VulkanDevice &device = *vulkan_device();
  const std::pair<VkBool32 *, const char *> all[] = {{&device.features.features.shaderFloat64, "shaderFloat64"},
                                                     {&device.features.features.shaderInt64, "shaderInt64"},
                                                     {&device.v11.storageBuffer16BitAccess, "storageBuffer16BitAccess"},
                                                     {&device.v12.storageBuffer8BitAccess, "storageBuffer8BitAccess"},
                                                     {&device.v12.bufferDeviceAddress, "bufferDeviceAddress"}};
  for (const auto &[feature, name] : all) {
    *feature = VK_FALSE;
    EXPECT_GSC_ERROR(open(device.handles()), GSC_ERROR_UNAVAILABLE, "options.vulkan", "was created without", name);
    *feature = VK_TRUE;
  }
  EXPECT_GSC_OK(open(device.handles()));
  gsc_vulkan_device handles = device.handles();
  handles.enabled_features = nullptr;
  EXPECT_GSC_OK(open(handles));
}

/// What the device itself lacks, by a physical device that says so.
TEST_F(Features, ThoseThatTheDeviceLacksAreNamed) {
  const std::pair<std::function<void(Said &)>, const char *> all[] = {
      {[](Said &s) { s.features.shaderFloat64 = VK_FALSE; }, "has no the feature shaderFloat64"},
      {[](Said &s) { s.properties.apiVersion = VK_API_VERSION_1_1; }, "has no Vulkan 1.2"},
      {[](Said &s) { s.properties.limits.maxComputeWorkGroupInvocations = 128; }, "maxComputeWorkGroupInvocations"},
      {[](Said &s) { s.properties.limits.maxComputeSharedMemorySize = 8192; }, "maxComputeSharedMemorySize"},
      {[](Said &s) { s.controls.shaderRoundingModeRTEFloat32 = VK_FALSE; }, "shaderRoundingModeRTEFloat32"},
      {[](Said &s) { s.controls.shaderRoundingModeRTEFloat64 = VK_FALSE; }, "shaderRoundingModeRTEFloat64"},
      {[](Said &s) { s.controls.shaderSignedZeroInfNanPreserveFloat32 = VK_FALSE; },
       "shaderSignedZeroInfNanPreserveFloat32"},
      {[](Said &s) { s.controls.shaderSignedZeroInfNanPreserveFloat64 = VK_FALSE; },
       "shaderSignedZeroInfNanPreserveFloat64"}};
  for (const auto &[change, name] : all) {
    Wrapped wrapped;
    wrapped.say = change;
    EXPECT_GSC_ERROR(open(wrapped.handles()), GSC_ERROR_UNAVAILABLE, "options.vulkan", name);
  }
}

/// 1.2.0, and no more than the limits that are asked for.
TEST_F(Features, TheLeastThatIsNeededIsEnough) {
  Wrapped wrapped;
  wrapped.say = [](Said &s) {
    s.properties.apiVersion = VK_API_VERSION_1_2;
    s.properties.limits.maxComputeWorkGroupInvocations = s.properties.limits.maxComputeWorkGroupSize[0] = 256;
    s.properties.limits.maxComputeSharedMemorySize = 16384;
  };
  EXPECT_GSC_OK(open(wrapped.handles()));
}

TEST_F(Features, HandlesAreChecked) {
  const gsc_vulkan_device good = vulkan_device()->handles();
  const std::pair<void * gsc_vulkan_device::*, const char *> fields[] = {
      {&gsc_vulkan_device::instance, "instance"},
      {&gsc_vulkan_device::physical_device, "physical_device"},
      {&gsc_vulkan_device::device, "device"},
      {&gsc_vulkan_device::queue, "queue"},
      {&gsc_vulkan_device::get_instance_proc_addr, "get_instance_proc_addr"}};
  for (const auto &[field, name] : fields) {
    gsc_vulkan_device bad = good;
    bad.*field = nullptr;
    EXPECT_INVALID(open(bad), "options.vulkan", name);
  }
  gsc_vulkan_device bad = good;
  bad.struct_size -= 4;
  EXPECT_INVALID(open(bad), "options.vulkan.struct_size");
  bad.struct_size -= 4;  // of a program that does not know the last field
  EXPECT_GSC_OK(open(bad));
  bad = good;
  bad.queue_family = 99;
  EXPECT_INVALID(open(bad), "options.vulkan", "queue_family");
  bad = good;
  bad.unlock = nullptr;
  EXPECT_INVALID(open(bad), "options.vulkan", "unlock");
  bad = good;
  bad.release = [](void *, const gsc_vulkan_buffer *) {};
  EXPECT_INVALID(open(bad), "options.vulkan", "allocate and release");
  gsc_context_options options = device_options();
  gsc_context *made = nullptr;
  options.flags = GSC_CONTEXT_USE_CURRENT;
  EXPECT_INVALID(gsc_context_create(&options, &made), "options.flags", "CUDA");
  options.flags = 0;
  options.device_pool = &made;
  EXPECT_INVALID(gsc_context_create(&options, &made), "options.device_pool", "CUDA");
  options = GSC_CONTEXT_OPTIONS_INIT;
  options.vulkan = &good;
  EXPECT_INVALID(gsc_context_create(&options, &made), "options.vulkan", "CPU");
}

TEST_F(Features, TheLibraryOpensADeviceOfItsOwn) {
  int32_t count = 0;
  ASSERT_GSC_OK(gsc_device_get_count(GSC_DEVICE_VULKAN, &count));
  ASSERT_GE(count, 1);
  auto info = with_size<gsc_device_info>();
  ASSERT_GSC_OK(gsc_device_get_info(GSC_DEVICE_VULKAN, 0, &info));
  EXPECT_EQ(info.device_type, GSC_DEVICE_VULKAN);
  EXPECT_GE(info.level, 12);
  EXPECT_GT(info.memory_bytes, 0);
  EXPECT_STRNE(info.name, "");
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_type = GSC_DEVICE_VULKAN;
  {
    const Context context = make_context(options);
    const Scaler scaler = make_scaler(context, 1024.0F);
    EXPECT_GSC_OK(gsc_scaler_set_scale(scaler, 8.0F, nullptr));
    EXPECT_EQ(scale_of(scaler), 8.0F);
  }
  options.device_index = count;
  gsc_context *made = nullptr;
  EXPECT_GSC_ERROR(gsc_context_create(&options, &made), GSC_ERROR_UNAVAILABLE, "options.device_index");
}

}  // namespace
}  // namespace gsc_test
