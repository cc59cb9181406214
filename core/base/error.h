// SPDX-License-Identifier: Apache-2.0
// The one exception of the core: a status and a sentence in a buffer of fixed size, so that reporting an error needs
// no memory beyond the exception object. The C ABI turns it into a gsc_status (capi/guard.h).
#pragma once

#include <cstdarg>
#include <cstdio>
#include <exception>

#include "gradscaler/gradscaler.h"

namespace gsc {

class Error final : public std::exception {
 public:
  Error(gsc_status status, const char *format, std::va_list arguments) noexcept : status_(status) {
    std::vsnprintf(message_, sizeof message_, format, arguments);
  }
  [[nodiscard]] gsc_status status() const noexcept { return status_; }
  [[nodiscard]] const char *what() const noexcept override { return message_; }

 private:
  gsc_status status_;
  char message_[448];
};

/// Throws an Error with a printf-style sentence that names the argument.
[[noreturn, gnu::format(printf, 2, 3), gnu::cold]] inline void fail(gsc_status status, const char *format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const Error error(status, format, arguments);
  va_end(arguments);
  throw error;
}

}  // namespace gsc
