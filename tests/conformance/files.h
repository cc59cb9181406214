// SPDX-License-Identifier: Apache-2.0
//
// Reads the conformance files, strictly: a key that stands twice, an unknown word and a number of the wrong kind are
// exceptions with a sentence, so that a mistake in a file fails its test. Names tests after the files' contents.
#ifndef GRADSCALER_TESTS_CONFORMANCE_FILES_H
#define GRADSCALER_TESTS_CONFORMANCE_FILES_H
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace gsc_test {

using Json = nlohmann::ordered_json;

inline Json read_json(const std::filesystem::path &path) {
  std::vector<std::set<std::string>> keys;
  const auto refuse_twice = [&](int, Json::parse_event_t event, Json &parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw std::runtime_error("the key " + parsed.dump() + " stands twice");
    }
    return true;
  };
  std::ifstream file(path);
  return Json::parse(file, refuse_twice);
}

/// The member, or NULL.
inline const Json *find(const Json &object, const std::string &key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

/// A number, or one of the strings "inf", "-inf" and "nan", which JSON has no numbers for.
inline double number(const Json &value) {
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  return value.get<double>();
}

inline int64_t integer(const Json &value) {
  if (!value.is_number_integer()) throw std::runtime_error("expected an integer, found " + value.dump());
  return value.get<int64_t>();
}

inline std::string word(const Json &value) { return value.get<std::string>(); }

/// As GoogleTest allows it.
inline std::string test_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace gsc_test
#endif
