// SPDX-License-Identifier: Apache-2.0
//
// Folders of JSON files as test parameters: one file is one test, named after it.
#ifndef GRADSCALER_TESTS_CONFORMANCE_FILES_H
#define GRADSCALER_TESTS_CONFORMANCE_FILES_H
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/json.h"

namespace gsc_test {

inline std::vector<std::filesystem::path> json_files(const char *folder) {
  std::vector<std::filesystem::path> files;
  for (const auto &entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

inline Json read_json(const std::filesystem::path &path) {
  std::ifstream file(path);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file) throw std::runtime_error("cannot be read");
  return Json::parse(content.str());
}

inline std::string file_name(const ::testing::TestParamInfo<std::filesystem::path> &info) {
  std::string name = info.param.stem().string();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace gsc_test
#endif
