// SPDX-License-Identifier: Apache-2.0
// The error with which a call of the libtorch adapter is refused.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <gradscaler/gradscaler.hpp>
#include <string>

/// The message of the error of `call`, or "no error".
inline std::string message_of(const std::function<void()> &call) {
  try {
    call();
  } catch (const gradscaler::Error &error) {
    return error.what();
  }
  return "no error";
}
#define EXPECT_REFUSED(call, part) EXPECT_PRED_FORMAT2(testing::IsSubstring, part, message_of([&] { call; }))
