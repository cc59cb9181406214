// SPDX-License-Identifier: Apache-2.0
// Opening a device.
#include "core/objects/context.h"

#include <cstdarg>
#include <cstdio>

#include "core/base/error.h"
#include "core/cpu/backend.h"
#include "core/cpu/dispatch.h"
#if defined(GSC_HAVE_CUDA)
#include "core/cuda/devices.h"
#endif

namespace gsc {
namespace {

constexpr int32_t kMaxThreads = 1024;

void validate(const gsc_context_options &o) {
  if (o.flags != 0) fail(GSC_ERROR_INVALID_ARGUMENT, "options.flags is %u; no flag is defined", o.flags);
  if (o.device_type != GSC_DEVICE_CPU && o.device_type != GSC_DEVICE_CUDA) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "options.device_type is %d; it must be GSC_DEVICE_CPU or GSC_DEVICE_CUDA",
         o.device_type);
  }
  if (o.num_threads < 0 || o.num_threads > kMaxThreads) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "options.num_threads is %d; it must be in 0..%d", o.num_threads, kMaxThreads);
  }
  if (o.cpu_target < GSC_CPU_BEST || o.cpu_target > GSC_CPU_AVX512) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "options.cpu_target is %d; it must be one of GSC_CPU_*", o.cpu_target);
  }
  if ((o.allocate == nullptr) != (o.release == nullptr)) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "options.%s is NULL; give both allocate and release, or neither",
         o.allocate == nullptr ? "allocate" : "release");
  }
}

}  // namespace

Ref<Context> Context::create(const gsc_context_options &options) {
  validate(options);
#if !defined(GSC_HAVE_CUDA)
  if (options.device_type == GSC_DEVICE_CUDA) {
    fail(GSC_ERROR_UNAVAILABLE, "options.device_type is GSC_DEVICE_CUDA, but this library was built without CUDA");
  }
#endif
  if (options.device_type == GSC_DEVICE_CPU && options.device_index != 0) {
    fail(GSC_ERROR_UNAVAILABLE, "options.device_index is %d, but there is only CPU 0", options.device_index);
  }
  Resource resource(options.allocate, options.release, options.allocator_user);
  void *memory = resource.allocate(sizeof(Context), alignof(Context));
  try {
    return Ref<Context>::adopt(new (memory) Context(resource, options));
  } catch (...) {
    resource.deallocate(memory, sizeof(Context), alignof(Context));
    throw;
  }
}

Context::Context(const Resource &memory, const gsc_context_options &options)
    : Object(kTag),
      memory_(memory),
      device_type_(options.device_type),
      device_index_(options.device_index),
      log_(options.log),
      log_user_(options.log_user),
      scratch_{Plan(&memory_), Plan(&memory_)} {
#if defined(GSC_HAVE_CUDA)
  if (device_type_ == GSC_DEVICE_CUDA) {
    backend_ = cuda::make_backend(&memory_, device_index_, &backend_bytes_);
    log(GSC_LOG_INFO, "CUDA context on device %d", device_index_);
    return;
  }
#endif
  const cpu::Kernels *kernels = cpu::find_kernels(options.cpu_target);
  if (kernels == nullptr) {
    fail(GSC_ERROR_UNAVAILABLE, "options.cpu_target is %d, which this processor or this build does not have",
         options.cpu_target);
  }
  cpu_target_ = options.cpu_target != GSC_CPU_BEST ? options.cpu_target : cpu::best_target();
  num_threads_ = options.num_threads != 0 ? options.num_threads : cpu::usable_processors();
  make_backend<cpu::CpuBackend>(&memory_, kernels, num_threads_, options.parallel_for, options.parallel_for_user);
  log(GSC_LOG_INFO, "CPU context with %s kernels and %d threads", kernels->name, num_threads_);
}

Context::~Context() {
  backend_->~Backend();
  memory_.deallocate(backend_, backend_bytes_, kMaxAlignment);
}

template <typename B, typename... Args>
void Context::make_backend(Args &&...args) {
  void *memory = memory_.allocate(sizeof(B), kMaxAlignment);
  try {
    backend_ = new (memory) B(std::forward<Args>(args)...);
    backend_bytes_ = sizeof(B);
  } catch (...) {
    memory_.deallocate(memory, sizeof(B), kMaxAlignment);
    throw;
  }
}

void Context::destroy() noexcept {
  Resource resource = memory_;
  this->~Context();
  resource.deallocate(this, sizeof(Context), alignof(Context));
}

void Context::set_log(gsc_log_fn log, void *user) {
  log_ = log;
  log_user_ = user;
}

void Context::log(int32_t level, const char *format, ...) const {
  if (log_ == nullptr) return;
  char message[512];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  log_(log_user_, level, message);
}

}  // namespace gsc
