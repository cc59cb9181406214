// SPDX-License-Identifier: Apache-2.0
//
// The real library on a machine without a CUDA driver or device: it loads, reports no devices, works on the CPU, and
// says why CUDA is unavailable. Skipped where there is a device.
#include "tests/support/objects.h"

namespace gsc_test {
namespace {

const gsc_context_options kCuda = [] {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_type = GSC_DEVICE_CUDA;
  return options;
}();

class Driverless : public testing::Test {
 protected:
  void SetUp() override {
    int32_t count = -1;
    ASSERT_GSC_OK(gsc_device_get_count(GSC_DEVICE_CUDA, &count));
    if (count > 0) GTEST_SKIP() << "there is a CUDA device";
    ASSERT_EQ(count, 0);
  }
  /// Common to all error messages.
  const char *reason() const {
    return std::string(gsc_library_get_build_info()).find("CUDA: none") != std::string::npos ? "built without CUDA"
                                                                                             : "cudaError";
  }
};

TEST_F(Driverless, AContextIsUnavailableWithTheReason) {
  auto *const untouched = reinterpret_cast<gsc_context *>(this);
  gsc_context *context = untouched;
  for (int i = 0; i < 2; ++i) {
    EXPECT_GSC_ERROR(gsc_context_create(&kCuda, &context), GSC_ERROR_UNAVAILABLE, reason());
    EXPECT_EQ(context, untouched);
    const std::string message = gsc_error_get_message();
    if (message.find("cudaErrorInsufficientDriver") != std::string::npos) {
      // The library knows its toolkit, whose generation decides which driver it needs.
      const bool twelve = message.find("built with CUDA 12.") != std::string::npos;
      const std::string need = text("this library needs NVIDIA's driver ", twelve ? 525 : 580);
      EXPECT_NE(message.find(need), std::string::npos) << message;
    }
  }
}

TEST_F(Driverless, ThereIsNoDeviceToDescribe) {
  auto info = with_size<gsc_device_info>();
  EXPECT_GSC_ERROR(gsc_device_get_info(GSC_DEVICE_CUDA, 0, &info), GSC_ERROR_UNAVAILABLE, "device");
}

TEST_F(Driverless, TheCpuWorksAfterwards) {
  gsc_context *none = nullptr;
  EXPECT_NE(gsc_context_create(&kCuda, &none), GSC_OK);
  const Context context = make_context();
  Buffer buffer(GSC_FP32, 100);
  buffer.fill(3.0);
  const gsc_tensor tensor = buffer.tensor();
  double norm = 0.0;
  ASSERT_GSC_OK(gsc_ops_norm(context, &tensor, 1, GSC_NORM_L2, &norm, nullptr, nullptr));
  EXPECT_EQ(norm, 30.0);
}

}  // namespace
}  // namespace gsc_test
