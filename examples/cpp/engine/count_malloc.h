// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace engine {
/// Allocations of this process so far; always 0 where they cannot be counted.
int64_t malloc_count();
}  // namespace engine
