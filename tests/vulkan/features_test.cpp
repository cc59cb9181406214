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
  static gsc_status open(const gscx_vulkan_device &handles) { return open(nullptr, handles); }
  static gsc_status open(const gsc_context_options *options, const gscx_vulkan_device &handles) {
    return status_of(gsc_context_destroy,
                     [&](gsc_context **out) { return gscx_context_create_vulkan(options, &handles, out); });
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
    EXPECT_GSC_ERROR(open(device.handles()), GSC_ERROR_UNAVAILABLE, "device", "was created without", name);
    *feature = VK_TRUE;
  }
  EXPECT_GSC_OK(open(device.handles()));
  gscx_vulkan_device handles = device.handles();
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
    EXPECT_GSC_ERROR(open(wrapped.handles()), GSC_ERROR_UNAVAILABLE, "device", name);
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
  const gscx_vulkan_device good = vulkan_device()->handles();
  const std::pair<void * gscx_vulkan_device::*, const char *> fields[] = {
      {&gscx_vulkan_device::instance, "instance"},
      {&gscx_vulkan_device::physical_device, "physical_device"},
      {&gscx_vulkan_device::device, "device"},
      {&gscx_vulkan_device::queue, "queue"},
      {&gscx_vulkan_device::get_instance_proc_addr, "get_instance_proc_addr"}};
  for (const auto &[field, name] : fields) {
    gscx_vulkan_device bad = good;
    bad.*field = nullptr;
    EXPECT_INVALID(open(bad), text("device.", name, " is NULL").c_str());
  }
  gscx_vulkan_device bad = good;
  bad.struct_size -= 4;
  EXPECT_INVALID(open(bad), "device.struct_size");
  bad.struct_size -= 4;  // of a program that does not know the last field
  EXPECT_GSC_OK(open(bad));
  bad = good;
  bad.queue_family = 99;
  EXPECT_INVALID(open(bad), "device.queue_family is 99");
  bad = good;
  bad.unlock = nullptr;
  EXPECT_INVALID(open(bad), "device.unlock is NULL");
  std::swap(bad.lock, bad.unlock);
  EXPECT_INVALID(open(bad), "device.lock is NULL");
  bad = good;
  bad.release = [](void *, const gscx_vulkan_buffer *) {};
  EXPECT_INVALID(open(bad), "device.allocate is NULL");
  bad = good;
  bad.allocate = [](void *, const void *, int32_t, gscx_vulkan_buffer *) -> int32_t { return VK_SUCCESS; };
  EXPECT_INVALID(open(bad), "device.release is NULL");
}

TEST_F(Features, OptionsAreThoseOfAnyContext) {
  const gscx_vulkan_device handles = vulkan_device()->handles();
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  EXPECT_GSC_OK(open(&options, handles));
  options.device_type = GSCX_DEVICE_VULKAN;
  EXPECT_GSC_OK(open(&options, handles));
  options.flags = GSC_CONTEXT_USE_CURRENT;
  EXPECT_INVALID(open(&options, handles), "options.flags", "CUDA");
  options.flags = 0;
  options.device_pool = &options;
  EXPECT_INVALID(open(&options, handles), "options.device_pool", "CUDA");
  HostMemory memory;
  {
    options = memory.options(GSCX_DEVICE_VULKAN);
    options.device_index = 7;
    gsc_context *made = nullptr;
    ASSERT_GSC_OK(gscx_context_create_vulkan(&options, &handles, &made));
    const Context context(made);
    EXPECT_GT(memory.live, 0);
    int32_t type = -1, index = -1;
    EXPECT_GSC_OK(gsc_context_get_device(context, &type, &index));
    EXPECT_EQ(type, GSCX_DEVICE_VULKAN);
    EXPECT_EQ(index, 7);
  }
  EXPECT_EQ(memory.live, 0);
}

TEST_F(Features, TheLibraryOpensADeviceOfItsOwn) {
  int32_t count = 0;
  ASSERT_GSC_OK(gsc_device_get_count(GSCX_DEVICE_VULKAN, &count));
  ASSERT_GE(count, 1);
  auto info = with_size<gsc_device_info>();
  ASSERT_GSC_OK(gsc_device_get_info(GSCX_DEVICE_VULKAN, 0, &info));
  EXPECT_EQ(info.device_type, GSCX_DEVICE_VULKAN);
  EXPECT_GE(info.level, 12);
  EXPECT_GT(info.memory_bytes, 0);
  EXPECT_STRNE(info.name, "");
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_type = GSCX_DEVICE_VULKAN;
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
