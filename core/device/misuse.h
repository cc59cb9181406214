// SPDX-License-Identifier: Apache-2.0
// Mistakes of the caller's callbacks while a backend ran on this thread. The backend notes them and goes on; the entry
// point reports them.
#pragma once

#include <cstdint>

namespace gsc {

/// A parallel-for that broke its contract.
struct Misuse {
  int32_t missing = 0;   ///< tasks that it had not run when it returned
  int32_t repeated = 0;  ///< tasks that it ran again, or that there were none of
  bool threw = false;    ///< an exception left it
};

void add_misuse(const Misuse &found) noexcept;
/// All of it on this thread since it was asked last.
Misuse take_misuse() noexcept;

}  // namespace gsc
