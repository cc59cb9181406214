// SPDX-License-Identifier: Apache-2.0
// Misuse, kept for each thread.
#include "core/device/misuse.h"

#include <utility>

namespace gsc {
namespace {

thread_local Misuse misuse;

}  // namespace

void add_misuse(const Misuse &found) noexcept {
  misuse.missing += found.missing;
  misuse.repeated += found.repeated;
  misuse.threw = misuse.threw || found.threw;
}

Misuse take_misuse() noexcept { return std::exchange(misuse, Misuse{}); }

}  // namespace gsc
