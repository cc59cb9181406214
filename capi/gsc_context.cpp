// SPDX-License-Identifier: Apache-2.0
// Entry points of contexts.
#include "capi/guard.h"
#include "core/objects/context.h"

using namespace gsc;
using namespace gsc::capi;

namespace {

gsc_context_options default_options() {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  return options;
}

}  // namespace

gsc_status gsc_context_options_init(gsc_context_options *options, uint32_t struct_size) {
  return guard(__func__, [&] { init_struct(options, struct_size, default_options()); });
}

gsc_status gsc_context_create(const gsc_context_options *options, gsc_context **out_context) {
  return guard(__func__, [&] {
    require(out_context, "out_context");
    gsc_context_options read = default_options();
    if (options != nullptr) read = read_struct(options, kOptions, read);
    *out_context = to_handle<gsc_context>(Context::create(read).detach());
  });
}

void gsc_context_destroy(gsc_context *context) { destroy(context); }

gsc_status gsc_context_get_device(const gsc_context *context, int32_t *out_device_type, int32_t *out_device_index) {
  return guard(__func__, [&] {
    const auto &c = object<Context>(context, "context");
    if (out_device_type != nullptr) *out_device_type = c.device_type();
    if (out_device_index != nullptr) *out_device_index = c.device_index();
  });
}

gsc_status gsc_context_get_cpu(const gsc_context *context, int32_t *out_cpu_target, int32_t *out_num_threads) {
  return guard(__func__, [&] {
    const auto &c = object<Context>(context, "context");
    if (out_cpu_target != nullptr) *out_cpu_target = c.cpu_target();
    if (out_num_threads != nullptr) *out_num_threads = c.num_threads();
  });
}

gsc_status gsc_context_get_memory(const gsc_context *context, int64_t *out_host_bytes, int64_t *out_device_bytes) {
  return guard(__func__, [&] {
    const auto &c = object<Context>(context, "context");
    if (out_host_bytes != nullptr) *out_host_bytes = c.host_bytes();
    if (out_device_bytes != nullptr) *out_device_bytes = c.device_bytes();
  });
}

gsc_status gsc_context_set_log(gsc_context *context, gsc_log_fn log, void *user) {
  return guard(__func__, [&] { object<Context>(context, "context").set_log(log, user); });
}
