// SPDX-License-Identifier: Apache-2.0
//
// Reads the conformance files and names tests after what is in them.
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

inline Json read_json(const std::filesystem::path &path) {
  std::ifstream file(path);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file) throw std::runtime_error("cannot be read");
  return Json::parse(content.str());
}

/// As GoogleTest allows it.
inline std::string test_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace gsc_test
#endif
