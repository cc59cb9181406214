// SPDX-License-Identifier: Apache-2.0
// Entry points about the library as a whole: version, status names, messages, devices.
#include <cstdio>
#include <cstring>

#include "capi/guard.h"
#include "core/cpu/dispatch.h"
#include "core/cpu/parallel.h"
#include "core/objects/operations.h"
#if defined(GSC_HAVE_CUDA)
#include "core/cuda/devices.h"
#endif

#if defined(__linux__)
#include <unistd.h>
#endif

namespace gsc::capi {
namespace {

// A plain array: a thread_local with a destructor would keep the library mapped after dlclose.
thread_local char last_message[512];

#define GSC_STRINGIFY_(x) #x
#define GSC_STRINGIFY(x) GSC_STRINGIFY_(x)
#define GSC_VERSION_STRING \
  GSC_STRINGIFY(GSC_VERSION_MAJOR) "." GSC_STRINGIFY(GSC_VERSION_MINOR) "." GSC_STRINGIFY(GSC_VERSION_PATCH)

constexpr char kBuildInfo[] = "gradscaler " GSC_VERSION_STRING
                              ", ABI 1, "
#if defined(__clang__)
                              "clang " __clang_version__
#elif defined(__GNUC__)
                              "gcc " __VERSION__
#else
                              "unknown compiler"
#endif
                              ", CPU kernels: baseline"
#if defined(GSC_HAVE_AVX2)
                              " avx2"
#endif
#if defined(GSC_HAVE_AVX512)
                              " avx512"
#endif
#if defined(GSC_HAVE_CUDA)
                              ", CUDA: " GSC_CUDA_ARCHITECTURES;
#else
                              ", CUDA: none";
#endif
static_assert(GSC_ABI_VERSION == 1, "kBuildInfo names the ABI");

int64_t physical_memory() {
#if defined(__linux__)
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? pages * page : 0;
#else
  return 0;
#endif
}

void require_device_type(int32_t device_type) {
  if (device_type != GSC_DEVICE_CPU && device_type != GSC_DEVICE_CUDA) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "device_type is %d; it must be GSC_DEVICE_CPU or GSC_DEVICE_CUDA", device_type);
  }
}

}  // namespace

gsc_status conclude(const char *function) noexcept {
  const cpu::Misuse found = cpu::take_misuse();
  if (found.missing == 0 && found.repeated == 0) return GSC_OK;
  char what[160];
  std::snprintf(
      what, sizeof what,
      "options.parallel_for left out %d tasks, which the calling thread ran, and ran %d that were done or not "
      "there, which had no effect; the call has done its work",
      found.missing, found.repeated);
  return set_error(GSC_ERROR_CALLBACK, function, what);
}

gsc_status set_error(gsc_status status, const char *function, const char *what) noexcept {
  cpu::take_misuse();
  std::snprintf(last_message, sizeof last_message, "%s: %s", function, what);
  return status;
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

const char *gsc_library_get_build_info(void) { return kBuildInfo; }

gsc_status gsc_device_get_count(int32_t device_type, int32_t *out_count) {
  return guard(__func__, [&] {
    require_device_type(device_type);
    require(out_count, "out_count");
#if defined(GSC_HAVE_CUDA)
    const int32_t cuda_devices = device_type == GSC_DEVICE_CUDA ? cuda::device_count() : 0;
#else
    const int32_t cuda_devices = 0;
#endif
    *out_count = device_type == GSC_DEVICE_CPU ? 1 : cuda_devices;
  });
}

gsc_status gsc_device_get_info(int32_t device_type, int32_t device_index, gsc_device_info *out_info) {
  return guard(__func__, [&] {
    require_device_type(device_type);
    require_out_struct(out_info, "out_info");
#if defined(GSC_HAVE_CUDA)
    if (device_type == GSC_DEVICE_CUDA) {
      *out_info = cuda::device_info(device_index);
      return;
    }
#endif
    if (device_type != GSC_DEVICE_CPU || device_index != 0) {
      fail(GSC_ERROR_UNAVAILABLE, "device_index is %d, and there is no such %s device", device_index,
           device_type == GSC_DEVICE_CPU ? "CPU" : "CUDA");
    }
    gsc_device_info info{};
    info.struct_size = sizeof info;
    info.device_type = GSC_DEVICE_CPU;
    info.units = cpu::usable_processors();
    info.level = cpu::best_target();
    info.memory_bytes = physical_memory();
    std::snprintf(info.name, sizeof info.name, "CPU (%s)", cpu::find_kernels(info.level)->name);
    *out_info = info;
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
