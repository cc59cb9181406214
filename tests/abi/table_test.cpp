// SPDX-License-Identifier: Apache-2.0
//
// gsc_library_get_api: which ABI numbers it answers, and that every pointer of the table is the exported function of the
// same place in capi/functions.txt. dlopen_test.c trains through the table alone.
#include <dlfcn.h>
#include <gradscaler/api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
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

}  // namespace
