// SPDX-License-Identifier: Apache-2.0
// The number of repetitions that a test makes.
#pragma once

#include <cstdlib>

namespace gsc_test {

/// Whether a test takes its long form: `scripts/test slow` sets GRADSCALER_TEST_LONG.
inline bool long_form() { return std::getenv("GRADSCALER_TEST_LONG") != nullptr; }

/// Sanitizers cost a factor of ten, and find in a few rounds what they find in many.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GSC_SANITIZED 1
#else
#define GSC_SANITIZED 0
#endif
inline constexpr bool kSanitized = GSC_SANITIZED != 0;

}  // namespace gsc_test
