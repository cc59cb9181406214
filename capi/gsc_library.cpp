// SPDX-License-Identifier: Apache-2.0
// Entry points about the library as a whole: version, status names, messages, devices.
#include <cstdio>
#include <cstring>

#include "capi/guard.h"
#include "core/device/misuse.h"
#include "core/device/registry.h"
#include "core/objects/operations.h"

namespace gsc::capi {
namespace {

// Plain data: a thread_local with a destructor would keep the library mapped after dlclose.
constexpr gsc_error kNoError = {sizeof(gsc_error), GSC_OK, "", "", "", -1, -1};
thread_local gsc_error last_error = kNoError;
thread_local char last_message[512];

#define GSC_STRINGIFY_(x) #x
#define GSC_STRINGIFY(x) GSC_STRINGIFY_(x)
#define GSC_VERSION_STRING \
  GSC_STRINGIFY(GSC_VERSION_MAJOR) "." GSC_STRINGIFY(GSC_VERSION_MINOR) "." GSC_STRINGIFY(GSC_VERSION_PATCH)

struct BuildInfo {
  char text[256] = "gradscaler " GSC_VERSION_STRING
                   ", ABI 1, "
#if defined(__clang__)
                   "clang " __clang_version__;
#elif defined(__GNUC__)
                   "gcc " __VERSION__;
#else
                   "unknown compiler";
#endif
  BuildInfo() {
    const std::size_t length = std::strlen(text);
    describe_backends(text + length, sizeof text - length);
  }
};
static_assert(GSC_ABI_VERSION == 1, "BuildInfo names the ABI");

}  // namespace

void require_no_misuse() {
  const Misuse found = take_misuse();
  if (found.missing == 0 && found.repeated == 0 && !found.threw) return;
  fail(GSC_ERROR_CALLBACK, kOptions.field("parallel_for"),
       "%sleft out %d tasks, which the calling thread ran, and ran %d twice or out of range, which had no effect; "
       "the call has done its work",
       found.threw ? "threw an exception, " : "", found.missing, found.repeated);
}

gsc_status set_error(const gsc_error &details, const char *function, const char *what) noexcept {
  last_error = details;
  last_error.function = function;
  std::snprintf(last_message, sizeof last_message, "%s: %s", function, what);
  return details.status;
}

}  // namespace gsc::capi

using namespace gsc;
using namespace gsc::capi;

const char *gsc_library_get_version(void) { return GSC_VERSION_STRING; }

uint32_t gsc_library_get_abi_version(void) { return GSC_ABI_VERSION; }

const char *gsc_status_get_name(gsc_status status) {
  switch (status) {
    case GSC_OK:
      return "ok";
    case GSC_ERROR_INVALID_ARGUMENT:
      return "invalid argument";
    case GSC_ERROR_BAD_STATE:
      return "bad state";
    case GSC_ERROR_OUT_OF_MEMORY:
      return "out of memory";
    case GSC_ERROR_UNAVAILABLE:
      return "unavailable";
    case GSC_ERROR_UNSUPPORTED:
      return "unsupported";
    case GSC_ERROR_DEVICE:
      return "device error";
    case GSC_ERROR_SCALE_FLOOR:
      return "scale at its floor";
    case GSC_ERROR_CALLBACK:
      return "callback failed";
    case GSC_ERROR_INTERNAL:
      return "internal error";
    default:
      return "unknown status";
  }
}

const char *gsc_error_get_message(void) { return last_message; }

gsc_status gsc_error_get_last(gsc_error *out_error) {
  return guard(__func__, [&] { write_struct(require_out_struct(out_error, "out_error"), last_error); });
}

void gsc_error_clear(void) {
  last_error = kNoError;
  last_message[0] = '\0';
}

const char *gsc_library_get_build_info(void) {
  static const BuildInfo info;
  return info.text;
}

gsc_status gsc_device_get_count(int32_t device_type, int32_t *out_count) {
  return guard(__func__, [&] {
    const BackendRow &backend = find_backend(device_type, "device_type");
    require(out_count, "out_count");
    *out_count = backend.device_count();
  });
}

gsc_status gsc_device_get_info(int32_t device_type, int32_t device_index, gsc_device_info *out_info) {
  return guard(__func__, [&] {
    const BackendRow &backend = find_backend(device_type, "device_type");
    require_out_struct(out_info, "out_info");
    write_struct(out_info, backend.device_info(device_index));
  });
}

gsc_status gsc_histogram_recommend_scale(const int64_t *histogram, int64_t bins, float current_scale, int32_t dtype,
                                         float *out_scale, double *out_flushed) {
  return guard(__func__, [&] {
    require(histogram, "histogram");
    require(out_scale, "out_scale");
    const ops::Recommendation r = ops::recommend_scale(histogram, bins, current_scale, dtype);
    *out_scale = r.scale;
    if (out_flushed != nullptr) *out_flushed = r.flushed;
  });
}
