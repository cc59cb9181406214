// SPDX-License-Identifier: Apache-2.0
// Calls of the caller's callbacks: a C++ exception that leaves one ends here, and so does a floating-point environment
// that one leaves behind.
#pragma once

#include <new>

#include "core/base/float_environment.h"

#if defined(__linux__)
#include <unwind.h>
#endif

namespace gsc {

enum class CallbackEnd { kReturned, kOutOfMemory, kThrew };

/// The library's copy of GCC's unwinder fills its tables when it is first used. The program's copy, which unwinds from
/// the callback, calls functions of ours that abort if it has not been.
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
