// SPDX-License-Identifier: Apache-2.0
// A fuzzer's bytes as choices and numbers, and how a target reports a wrong answer.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gradscaler/gradscaler.h"

namespace gsc_fuzz {

/// Bytes one after the other; zeros when there are none left.
class Bytes {
 public:
  Bytes(const uint8_t *data, size_t size) : at_(data), end_(data + size) {}
  [[nodiscard]] bool empty() const { return at_ == end_; }
  [[nodiscard]] const uint8_t *data() const { return at_; }
  [[nodiscard]] size_t size() const { return static_cast<size_t>(end_ - at_); }
  template <typename T>
  T take() {
    T value{};
    const size_t n = size() < sizeof value ? size() : sizeof value;
    if (n > 0) std::memcpy(static_cast<void *>(&value), at_, n);
    at_ += n;
    return value;
  }
  /// In [0, n).
  int64_t below(int64_t n) { return take<uint8_t>() % n; }
  /// One of `all`, of which there are 256 at most.
  template <typename All>
  const auto &pick(const All &all) {
    return all[static_cast<size_t>(below(static_cast<int64_t>(all.size())))];
  }

 private:
  const uint8_t *at_;
  const uint8_t *end_;
};

/// Ends the process, as a crash does, so that the fuzzer keeps the input.
#define FUZZ_CHECK(condition)                                                                                    \
  do {                                                                                                           \
    if (!(condition)) {                                                                                          \
      std::fprintf(stderr, "%s:%d: %s is false; %s\n", __FILE__, __LINE__, #condition, gsc_error_get_message()); \
      std::abort();                                                                                              \
    }                                                                                                            \
  } while (0)

}  // namespace gsc_fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
