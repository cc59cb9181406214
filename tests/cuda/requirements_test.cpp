// SPDX-License-Identifier: Apache-2.0
//
// A driver that is too old, and a device that the library has no code for: the error names what was found and what is
// needed, nothing leaks, and everything works once the cause is gone.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/cuda/operations.h"

namespace gsc_test {
namespace {

/// Makes a runtime call fail for as long as it lives.
class Failing {
 public:
  Failing(const char *call, cudaError_t error) { emulation::fail_always(call, error); }
  Failing &operator=(Failing &&) = delete;
  ~Failing() { emulation::fail_always("", cudaSuccess); }
};

/// The error of opening a context on device 0. It must fail, and leak no CUDA context, memory or object.
std::string refusal(const char *call, cudaError_t error) {
  const Inventory before;
  const gsc_context_options options = cuda_options();
  gsc_context *context = nullptr;
  {
    const Failing failing(call, error);
    EXPECT_EQ(gsc_context_create(&options, &context), GSC_ERROR_UNAVAILABLE);
  }
  const std::string message = gsc_error_get_message();
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(Inventory(), before);
  EXPECT_NE(make_cuda_context(0).get(), nullptr) << "without the failure";
  return message;
}

#define EXPECT_SAYS(message, text) EXPECT_NE((message).find(text), std::string::npos) << (message)

TEST(Requirements, ADriverThatIsTooOld) {
  for (const cudaError_t error : {cudaErrorInsufficientDriver, cudaErrorCallRequiresNewerDriver}) {
    const std::string message = refusal("cudaGetDeviceCount", error);
    EXPECT_SAYS(message, "built with CUDA " GSC_CUDA_RELEASE);
    EXPECT_SAYS(message,
                CUDART_VERSION >= 13000 ? "needs NVIDIA's driver 580 or later" : "needs NVIDIA's driver 525 or later");
  }
}

TEST(Requirements, ADeviceThatThereIsNoCodeFor) {
  for (const cudaError_t error : {cudaErrorNoKernelImageForDevice, cudaErrorUnsupportedPtxVersion}) {
    const std::string message = refusal("cudaFuncGetAttributes", error);
    EXPECT_SAYS(message, "on CUDA device 0 (sm_90, driver for CUDA 13.0)");
    EXPECT_SAYS(message, "this library holds " GSC_CUDA_ARCHITECTURES);
    EXPECT_SAYS(message, "needs a driver for CUDA " GSC_CUDA_RELEASE " or later");
  }
}

/// In a separate process, because the driver's functions are looked up once.
TEST(RequirementsDeathTest, ADriverThatLacksAFunction) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto open = [] {
    const gsc_context_options options = cuda_options();
    gsc_context *context = nullptr;
    const Failing failing("cudaGetDriverEntryPoint", cudaErrorCallRequiresNewerDriver);
    const gsc_status status = gsc_context_create(&options, &context);
    std::fputs(gsc_error_get_message(), stderr);
    std::exit(status == GSC_ERROR_UNAVAILABLE && context == nullptr ? 0 : 1);
  };
  EXPECT_EXIT(open(), testing::ExitedWithCode(0), "cudaGetDriverEntryPoint.*needs NVIDIA's driver");
}

TEST(Requirements, ADeviceOutOfMemoryIsNotADriverTooOld) {
  const gsc_context_options options = cuda_options();
  gsc_context *context = nullptr;
  const Failing failing("cudaFuncGetAttributes", cudaErrorMemoryAllocation);
  EXPECT_EQ(gsc_context_create(&options, &context), GSC_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(std::string(gsc_error_get_message()).find("driver 5"), std::string::npos) << gsc_error_get_message();
}

}  // namespace
}  // namespace gsc_test
