// SPDX-License-Identifier: Apache-2.0
// Whether a test takes its long form.
#pragma once

#include <cstdlib>

namespace gsc_test {

/// `scripts/test slow` sets GRADSCALER_TEST_LONG.
inline bool long_form() { return std::getenv("GRADSCALER_TEST_LONG") != nullptr; }

}  // namespace gsc_test
