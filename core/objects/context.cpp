// SPDX-License-Identifier: Apache-2.0
// Opening a device.
#include "core/objects/context.h"

#include <cstdarg>
#include <cstdio>

#include "core/base/callback.h"
#include "core/base/decimal.h"
#include "core/base/error.h"

namespace gsc {
namespace {

void validate(const gsc_context_options &o) {
  if ((o.flags & ~static_cast<uint32_t>(GSC_CONTEXT_USE_CURRENT)) != 0) {
    refuse(kOptions.field("flags"), "is %u; the only flag is GSC_CONTEXT_USE_CURRENT", o.flags);
  }
  if (o.num_threads < 0 || o.num_threads > kMaxThreads) {
    refuse(kOptions.field("num_threads"), "is %d; it must be in 0..%d", o.num_threads, kMaxThreads);
  }
  if (o.cpu_target < GSC_CPU_BEST || o.cpu_target > GSC_CPU_NEON_BF16) {
    refuse_value(kOptions.field("cpu_target"), o.cpu_target, "one of GSC_CPU_*");
  }
  if ((o.allocate == nullptr) != (o.release == nullptr)) {
    refuse(kOptions.field(o.allocate == nullptr ? Literal("allocate") : Literal("release")),
           "is NULL; give both allocate and release, or neither");
  }
}

}  // namespace

Ref<Context> Context::create(const gsc_context_options &options, const gscx_vulkan_device *vulkan) {
  validate(options);
  Resource resource(options.allocate, options.release, options.allocator_user);
  void *memory = resource.allocate(sizeof(Context), alignof(Context));
  try {
    return Ref<Context>::adopt(new (memory) Context(resource, options, vulkan));
  } catch (...) {
    resource.deallocate(memory, sizeof(Context), alignof(Context));
    throw;
  }
}

Context::Context(const Resource &memory, const gsc_context_options &options, const gscx_vulkan_device *vulkan)
    : Object(kTag),
      memory_(memory),
      row_(find_backend(options.device_type, kOptions.field("device_type"))),
      device_index_(options.device_index),
      log_(options.log),
      log_user_(options.log_user),
      scratch_{Plan(&memory_), Plan(&memory_)} {
  const OpenBackend made = row_.open(&memory_, options, vulkan);
  backend_ = made.backend;
  backend_bytes_ = made.bytes;
  cpu_target_ = made.cpu_target;
  num_threads_ = made.num_threads;
  log(GSC_LOG_INFO, "%s", made.description);
}

Context::~Context() {
  events_.clear(*backend_);
  backend_->~Backend();
  memory_.deallocate(backend_, backend_bytes_, kMaxAlignment);
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
  call_back([&] { log_(log_user_, level, message); });
}

}  // namespace gsc
