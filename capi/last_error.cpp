// SPDX-License-Identifier: Apache-2.0
// The most recent failure on each thread, and the functions that tell it.
#include "capi/last_error.h"

#include <cstdio>

#include "capi/guard.h"

namespace gsc::capi {
namespace {

// Plain data: a thread_local with a destructor would keep the library mapped after dlclose.
constexpr gsc_error kNoError = {sizeof(gsc_error), GSC_OK, "", "", "", -1, -1};
thread_local gsc_error last_error = kNoError;
thread_local char last_message[512];

}  // namespace

gsc_status set_error(const gsc_error &details, const char *function, const char *what) noexcept {
  last_error = details;
  last_error.function = function;
  std::snprintf(last_message, sizeof last_message, "%s: %s", function, what);
  return details.status;
}

}  // namespace gsc::capi

using namespace gsc::capi;

const char *gsc_error_get_message(void) { return last_message; }

gsc_status gsc_error_get_last(gsc_error *out_error) {
  return guard(__func__, [&] { write_struct(require_out_struct(out_error, "out_error"), last_error); });
}

void gsc_error_clear(void) {
  last_error = kNoError;
  last_message[0] = '\0';
}
