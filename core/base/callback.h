// SPDX-License-Identifier: Apache-2.0
// Calls the caller's callbacks. Catches their C++ exceptions, and restores the floating-point environment after them.
#pragma once

#include <new>

#include "core/base/float_environment.h"

#if defined(__linux__)
#include <unwind.h>
#endif

namespace gsc {

enum class CallbackEnd { kReturned, kOutOfMemory, kThrew };

/// The library's copy of GCC's unwinder fills its tables at first use. The program's copy, which unwinds from the
/// callback, calls functions in our copy, and these abort if the tables are empty. So this uses our copy first.
inline bool prepare_unwinder() {
#if defined(__linux__)
  _Unwind_Backtrace([](_Unwind_Context *, void *) { return _URC_END_OF_STACK; }, nullptr);
#endif
  return true;
}

/// Calls f(), which calls a callback.
template <typename F>
CallbackEnd call_back(const F &f) noexcept {
  [[maybe_unused]] static const bool is_prepared = prepare_unwinder();
  CallbackEnd end = CallbackEnd::kReturned;
  try {
    f();
  } catch (const std::bad_alloc &) {
    end = CallbackEnd::kOutOfMemory;
  } catch (...) {
    end = CallbackEnd::kThrew;
  }
  FloatEnvironment::renew();
  return end;
}

}  // namespace gsc
