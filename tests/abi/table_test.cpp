// SPDX-License-Identifier: Apache-2.0
//
// gsc_library_get_api: which ABI numbers it answers, that every pointer of the table is the exported function of the same
// place in capi/functions.txt, and a training step through the table alone.
#include <dlfcn.h>
#include <gradscaler/api.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace {

std::vector<std::string> listed_functions() {
  std::vector<std::string> names;
  std::ifstream file(GSC_FUNCTIONS_FILE);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("gsc_")) names.push_back(line);
  }
  return names;
}

TEST(GetApi, AnswersItsOwnNumberOnly) {
  ASSERT_NE(gsc_library_get_api(GSC_ABI_VERSION), nullptr);
  EXPECT_EQ(gsc_library_get_api(0), nullptr);
  EXPECT_EQ(gsc_library_get_api(GSC_ABI_VERSION + 1), nullptr);
  EXPECT_EQ(gsc_library_get_api(999), nullptr);
  EXPECT_EQ(gsc_library_get_api(UINT32_MAX), nullptr);
  EXPECT_EQ(gsc_library_get_api(GSC_ABI_VERSION), gsc_library_get_api(GSC_ABI_VERSION));
}

TEST(GetApi, HeadSaysWhatItIs) {
  const gsc_api *api = gsc_library_get_api(GSC_ABI_VERSION);
  EXPECT_EQ(api->struct_size, sizeof(gsc_api));
  EXPECT_EQ(api->abi_version, GSC_ABI_VERSION);
  EXPECT_EQ(api->library_get_abi_version(), gsc_library_get_abi_version());
  EXPECT_STREQ(api->library_get_version(), gsc_library_get_version());
  EXPECT_TRUE(GSC_API_HAS(api, library_get_build_info));
  gsc_api older = *api;
  older.struct_size = offsetof(gsc_api, library_get_build_info);
  EXPECT_FALSE(GSC_API_HAS(&older, library_get_build_info));
}

TEST(GetApi, EveryPointerIsTheFunctionOfThatName) {
  const gsc_api *api = gsc_library_get_api(GSC_ABI_VERSION);
  const std::vector<std::string> names = listed_functions();
  ASSERT_GE(names.size(), 72u);
  ASSERT_EQ(api->struct_size, 8 + names.size() * sizeof(void *));
  for (std::size_t i = 0; i < names.size(); ++i) {
    void *pointer = nullptr;
    std::memcpy(&pointer, reinterpret_cast<const char *>(api) + 8 + i * sizeof pointer, sizeof pointer);
    EXPECT_NE(pointer, nullptr) << names[i];
    EXPECT_EQ(pointer, dlsym(RTLD_DEFAULT, names[i].c_str())) << names[i];
  }
}

TEST(GetApi, TrainsThroughTheTable) {
  const gsc_api *api = gsc_library_get_api(GSC_ABI_VERSION);
  std::array<float, 3> weights{1.0f, -2.0f, 3.0f}, grads{};
  const gsc_tensor w = GSC_TENSOR_INIT(weights.data(), 3, GSC_FP32), g = GSC_TENSOR_INIT(grads.data(), 3, GSC_FP32);
  gsc_context *context = nullptr;
  gsc_tensor_list *params_list = nullptr, *grads_list = nullptr;
  gsc_optimizer *optimizer = nullptr;
  gsc_scaler *scaler = nullptr;
  gsc_optimizer_options options;
  ASSERT_EQ(api->optimizer_options_init(&options, sizeof options, GSC_SGD), GSC_OK);
  options.lr = 0.5;
  ASSERT_EQ(api->context_create(nullptr, &context), GSC_OK);
  ASSERT_EQ(api->tensor_list_create(context, &w, 1, nullptr, &params_list), GSC_OK);
  ASSERT_EQ(api->tensor_list_create(context, &g, 1, nullptr, &grads_list), GSC_OK);
  ASSERT_EQ(api->optimizer_create(context, &options, params_list, grads_list, nullptr, nullptr, 0, &optimizer), GSC_OK);
  ASSERT_EQ(api->scaler_create(context, nullptr, &scaler), GSC_OK);

  float scale = 0;
  ASSERT_EQ(api->scaler_get_scale_sync(scaler, &scale, nullptr), GSC_OK);
  EXPECT_EQ(scale, 65536.0f);
  for (int i = 0; i < 3; ++i) grads[i] = weights[i] * scale;
  ASSERT_EQ(api->scaler_step(scaler, optimizer, nullptr), GSC_OK);
  ASSERT_EQ(api->scaler_update(scaler, nullptr), GSC_OK);
  EXPECT_EQ(weights, (std::array<float, 3>{0.5f, -1.0f, 1.5f}));  // w - 0.5 * w

  grads[1] = std::numeric_limits<float>::infinity();
  ASSERT_EQ(api->scaler_step_and_update(scaler, optimizer, nullptr), GSC_OK);
  EXPECT_EQ(weights, (std::array<float, 3>{0.5f, -1.0f, 1.5f}));  // skipped
  ASSERT_EQ(api->scaler_get_scale_sync(scaler, &scale, nullptr), GSC_OK);
  EXPECT_EQ(scale, 32768.0f);

  EXPECT_EQ(api->scaler_update(scaler, nullptr), GSC_ERROR_BAD_STATE);
  EXPECT_STREQ(api->error_get_message(), gsc_error_get_message());
  EXPECT_STRNE(api->error_get_message(), "");
  api->scaler_destroy(scaler);
  api->optimizer_destroy(optimizer);
  api->tensor_list_destroy(grads_list);
  api->tensor_list_destroy(params_list);
  api->context_destroy(context);
}

}  // namespace
