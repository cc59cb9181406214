// SPDX-License-Identifier: Apache-2.0
//
// A context to which no device is given, by the loader of loader.c: one below version 1.2 is refused in a sentence, and
// 1.2.0 is asked for an instance.
#include <vulkan/vulkan_core.h>

#include <cstdlib>

#include "gradscaler/vulkan.h"
#include "tests/support/objects.h"

namespace gsc_test {
namespace {

TEST(Loader, OfVersion12AtLeastIsUsed) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_type = GSCX_DEVICE_VULKAN;
  gsc_context *made = nullptr;
  for (const uint32_t version : {VK_API_VERSION_1_0, VK_MAKE_API_VERSION(0, 1, 1, 999)}) {
    ::setenv("GSC_TEST_LOADER_VERSION", std::to_string(version).c_str(), 1);
    EXPECT_GSC_ERROR(gsc_context_create(&options, &made), GSC_ERROR_UNAVAILABLE, "older than version 1.2");
  }
  for (const uint32_t version : {VK_API_VERSION_1_2, VK_API_VERSION_1_3}) {
    ::setenv("GSC_TEST_LOADER_VERSION", std::to_string(version).c_str(), 1);
    EXPECT_GSC_ERROR(gsc_context_create(&options, &made), GSC_ERROR_UNAVAILABLE, "vkCreateInstance");
  }
}

}  // namespace
}  // namespace gsc_test
