// SPDX-License-Identifier: Apache-2.0
// Entry points about the library as a whole: version, status names, devices.
#include <cstring>

#include "capi/guard.h"
#include "core/device/registry.h"
#include "core/objects/operations.h"

namespace gsc::capi {
namespace {

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
    case GSC_ERROR_SPIKES:
      return "spikes persist";
    default:
      return "unknown status";
  }
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
