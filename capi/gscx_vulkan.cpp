// SPDX-License-Identifier: Apache-2.0
// The entry point of <gradscaler/vulkan.h>, which every build has: without the backend it says so.
#include "capi/guard.h"
#include "core/base/decimal.h"
#include "core/objects/context.h"
#include "gradscaler/vulkan.h"

using namespace gsc;
using namespace gsc::capi;

gsc_status gscx_context_create_vulkan(const gsc_context_options *options, const gscx_vulkan_device *device,
                                      gsc_context **out_context) {
  return guard(__func__, [&] {
    require(out_context, "out_context");
    const gscx_vulkan_device handles = read_struct(device, "device");
    gsc_context_options all = GSC_CONTEXT_OPTIONS_INIT;
    if (options != nullptr) all = read_struct(options, kOptions, all);
    if (all.device_type != GSC_DEVICE_CPU && all.device_type != GSCX_DEVICE_VULKAN) {
      refuse_value(kOptions.field("device_type"), all.device_type, "GSCX_DEVICE_VULKAN, or the default");
    }
    all.device_type = GSCX_DEVICE_VULKAN;
    *out_context = to_handle<gsc_context>(Context::create(all, &handles).detach());
  });
}
