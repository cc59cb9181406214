// SPDX-License-Identifier: Apache-2.0
//
// Bad input to contexts, device queries and option initialisers: the status, a message that names the argument, and
// outputs left as they were. Run under AddressSanitizer it also proves that refused calls leak nothing.
#include "gradscaler/vulkan.h"
#include "tests/support/objects.h"

namespace gsc_test {
namespace {

TEST(BadInputContext, ThreadsAndInstructionSet) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.num_threads = -1;
  EXPECT_INVALID(status_of_context(options), "num_threads is -1; it must be in 0..1024");
  options = GSC_CONTEXT_OPTIONS_INIT;
  for (const int32_t target : {GSC_CPU_AVX2, GSC_CPU_AVX512, GSC_CPU_NEON_BF16}) {
    options.cpu_target = target;
    if (const gsc_status status = status_of_context(options); status != GSC_OK) {
      EXPECT_EQ(status, GSC_ERROR_UNAVAILABLE) << "not this processor, or not this build";
    }
  }
}

TEST(BadInputContext, HalfAnAllocator) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.allocate = [](void *, int64_t, int64_t) -> void * { return nullptr; };
  EXPECT_INVALID(status_of_context(options), "release");
  EXPECT_STREQ(last_error().field, "release");
  options = GSC_CONTEXT_OPTIONS_INIT;
  options.release = [](void *, void *, int64_t, int64_t) {};
  EXPECT_INVALID(status_of_context(options), "allocate");
  EXPECT_STREQ(last_error().field, "allocate");
}

TEST(BadInputContext, NoSuchDevice) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_index = 1;
  EXPECT_NE(status_of_context(options), GSC_OK);
  int32_t cuda_devices = -1;
  ASSERT_GSC_OK(gsc_device_get_count(GSC_DEVICE_CUDA, &cuda_devices));
  options.device_type = GSC_DEVICE_CUDA;
  options.device_index = cuda_devices;
  EXPECT_GSC_ERROR(status_of_context(options), GSC_ERROR_UNAVAILABLE, "CUDA");
}

TEST(BadInputContext, NullHandles) {
  int32_t type = -7;
  EXPECT_INVALID(gsc_context_get_device(nullptr, &type, nullptr), "context");
  EXPECT_EQ(type, -7);
  EXPECT_INVALID(gsc_context_get_cpu(nullptr, &type, nullptr), "context");
  EXPECT_EQ(type, -7);
  int64_t bytes = -7;
  EXPECT_INVALID(gsc_context_get_memory(nullptr, &bytes, nullptr), "context");
  EXPECT_EQ(bytes, -7);
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_pool = &bytes;
  EXPECT_INVALID(status_of_context(options), "options.device_pool", "CPU");
  EXPECT_INVALID(gsc_context_set_log(nullptr, nullptr, nullptr), "context");
  EXPECT_INVALID(gsc_context_create(nullptr, nullptr), "out_context");
  gsc_context_destroy(nullptr);
}

/// Of the experiment, whose function every build has.
TEST(BadInputContext, VulkanDevice) {
  auto handles = with_size<gscx_vulkan_device>();
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  const auto status_with = [&](const gscx_vulkan_device *device) {
    return status_of(gsc_context_destroy,
                     [&](gsc_context **out) { return gscx_context_create_vulkan(&options, device, out); });
  };
  EXPECT_INVALID(gscx_context_create_vulkan(&options, &handles, nullptr), "out_context");
  EXPECT_INVALID(status_with(nullptr), "device is NULL");
  options.device_type = GSC_DEVICE_CUDA;
  EXPECT_INVALID(status_with(&handles), "options.device_type is 1; it must be GSCX_DEVICE_VULKAN");
  options.device_type = GSC_DEVICE_CPU;
  options.struct_size = 0;
  EXPECT_INVALID(status_with(&handles), "options.struct_size");
  options.struct_size = sizeof options;
  options.num_threads = -1;
  EXPECT_INVALID(status_with(&handles), "options.num_threads");
  options.num_threads = 0;
  if (std::string(gsc_library_get_build_info()).find("Vulkan: no") != std::string::npos) {
    EXPECT_GSC_ERROR(status_with(&handles), GSC_ERROR_UNAVAILABLE, "device", "built without Vulkan");
    options.device_type = GSCX_DEVICE_VULKAN;
    EXPECT_GSC_ERROR(status_of_context(options), GSC_ERROR_UNAVAILABLE, "options.device_type", "built without Vulkan");
  } else {
    EXPECT_INVALID(status_with(&handles), "device.instance is NULL");
  }
  handles.struct_size = 8;
  EXPECT_INVALID(status_with(&handles), "device.struct_size is 8");
}

TEST(BadInputContext, DeviceQueries) {
  int32_t count = -7;
  EXPECT_INVALID(gsc_device_get_count(GSC_DEVICE_CPU, nullptr), "out_count");
  EXPECT_INVALID(gsc_device_get_count(42, &count), "device_type");
  EXPECT_EQ(count, -7);

  gsc_device_info info;
  std::memset(&info, 0x5a, sizeof info);
  info.struct_size = sizeof info;
  const gsc_device_info before = info;
  EXPECT_INVALID(gsc_device_get_info(GSC_DEVICE_CPU, 0, nullptr), "out_info");
  EXPECT_INVALID(gsc_device_get_info(42, 0, &info), "device_type");
  EXPECT_GSC_ERROR(gsc_device_get_info(GSC_DEVICE_CPU, 1, &info), GSC_ERROR_UNAVAILABLE, "device");
  EXPECT_TRUE(same_bytes(info, before));
  ASSERT_GSC_OK(gsc_device_get_info(GSC_DEVICE_CPU, 0, &info));
  EXPECT_EQ(info.device_type, GSC_DEVICE_CPU);
  EXPECT_GE(info.units, 1);
  int32_t level = 0;
  EXPECT_GSC_OK(gsc_context_get_cpu(make_context(), &level, nullptr));
  EXPECT_EQ(info.level, level);
  ASSERT_NE(std::memchr(info.name, 0, sizeof info.name), nullptr);
  EXPECT_STRNE(info.name, "");
}

TEST(BadInputContext, GettersWriteWhatIsAskedFor) {
  const Context context = make_context();
  int32_t type = -1, index = -1;
  EXPECT_GSC_OK(gsc_context_get_device(context, &type, nullptr));
  EXPECT_EQ(type, GSC_DEVICE_CPU);
  EXPECT_GSC_OK(gsc_context_get_device(context, nullptr, &index));
  EXPECT_EQ(index, 0);
}

TEST(BadInputContext, StatusNames) {
  EXPECT_STREQ(gsc_status_get_name(1234), "unknown status");
  EXPECT_STREQ(gsc_status_get_name(GSC_ERROR_INVALID_ARGUMENT), "invalid argument");
  for (gsc_status status = GSC_OK; status <= GSC_ERROR_INTERNAL; ++status) {
    EXPECT_STRNE(gsc_status_get_name(status), "unknown status") << status;
    EXPECT_STRNE(gsc_status_get_name(status), "") << status;
  }
}

}  // namespace
}  // namespace gsc_test
