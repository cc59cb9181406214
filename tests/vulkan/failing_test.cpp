// SPDX-License-Identifier: Apache-2.0
//
// Every function of Vulkan that can fail, failing in turn in every kind of call: an error that names it, nothing changed,
// and the call works when it is tried again. A lost device is an error in every call, and all can still be destroyed.
#include <set>

#include "tests/cuda/twin.h"
#include "tests/vulkan/wrapped.h"

namespace gsc_test {
namespace {

/// What the calls work on.
struct World {
  explicit World(const gscx_vulkan_device &handles) : context(make_context(handles)) {
    Random random(3);
    for (Twin *twin : {&p, &g, &x}) twin->fill(Values::kOrdinary, random);
    params = make_list(context, {p.device_tensor()});
    grads = make_list(context, {g.device_tensor()});
    scaler = make_scaler(context, 1024.0F);
    optimizer = make_optimizer(context, optimizer_options(GSC_LAMB), params, grads);
    image = saved_image(optimizer);
  }
  std::vector<char> content() const {
    std::vector<char> all = p.image();
    for (const std::vector<char> &more : {g.image(), x.image()}) all.insert(all.end(), more.begin(), more.end());
    const gsc_scaler_state state = state_of(scaler);
    const auto *bytes = reinterpret_cast<const char *>(&state);
    all.insert(all.end(), bytes, bytes + sizeof state);
    for (const unsigned char byte : saved_image(optimizer)) all.push_back(static_cast<char>(byte));
    return all;
  }
  Context context;
  Twin p{GSC_FP32, 3000}, g{GSC_FP16, 3000}, x{GSC_FP32, 500};
  List params, grads;
  Scaler scaler;
  Optimizer optimizer;
  std::vector<unsigned char> image;
};

struct Call {
  const char *name;
  std::function<gsc_status(World &)> run;
  bool changes = false;
  bool partly = false;  ///< it may be done in part, and is refused until it is done again
};

const std::vector<Call> &calls() {
  static const std::vector<Call> all = {
      {"a list",
       [](World &w) {
         gsc_tensor_list *made = nullptr;
         const gsc_tensor t = w.x.device_tensor();
         const gsc_status status = gsc_tensor_list_create(w.context, &t, 1, nullptr, &made);
         gsc_tensor_list_destroy(made);
         return status;
       }},
      {"a scaler",
       [](World &w) {
         gsc_scaler *made = nullptr;
         const gsc_status status = gsc_scaler_create(w.context, nullptr, &made);
         gsc_scaler_destroy(made);
         return status;
       }},
      {"a step", [](World &w) { return gsc_scaler_step_and_update(w.scaler, w.optimizer, nullptr); }, true},
      {"a scale", [](World &w) { return gsc_scaler_set_scale(w.scaler, 7.0F, nullptr); }, true},
      {"a report",
       [](World &w) {
         auto report = with_size<gsc_report>();
         return gsc_scaler_get_report_sync(w.scaler, nullptr, &report, nullptr);
       }},
      {"a checkpoint", [](World &w) { return load_image(w.optimizer, w.image); }, true, true},
      {"an operation",
       [](World &w) {
         const gsc_tensor t = w.x.device_tensor();
         return gsc_ops_axpby(w.context, 0.5, &t, 0.25, &t, 1, nullptr);
       },
       true},
      {"a diagnosis",
       [](World &w) {
         gsc_tensor_diagnosis out;
         std::vector<int64_t> bins(GSC_EXPONENT_BINS);
         return gsc_tensor_list_diagnose_sync(w.params, &out, bins.data(), 1, nullptr);
       }},
      {"a group", [](World &w) {
         const gsc_optimizer_options options = optimizer_options(GSC_LAMB);
         return gsc_optimizer_add_group(w.optimizer, 0, 1, &options, nullptr);
       }}};
  return all;
}

void expect_named(gsc_status status, const std::string &failed) {
  const std::string message = gsc_error_get_message();
  EXPECT_TRUE(status == GSC_ERROR_DEVICE || status == GSC_ERROR_OUT_OF_MEMORY) << message;
  EXPECT_NE(message.find(failed), std::string::npos) << message << " does not name " << failed;
}

std::set<std::string> seen;

TEST(Failing, ContextsLeaveNothingBehind) {
  SKIP_WITHOUT_DEVICE();
  Wrapped wrapped;
  const gscx_vulkan_device handles = wrapped.handles();
  for (int n = 1;; ++n) {
    SCOPED_TRACE(n);
    wrapped.fail_at(n);
    gsc_context *made = nullptr;
    const gsc_status status = gscx_context_create_vulkan(nullptr, &handles, &made);
    gsc_context_destroy(made);
    EXPECT_EQ(wrapped.live, 0);
    if (wrapped.failed().empty()) break;
    seen.insert(wrapped.failed());
    expect_named(status, wrapped.failed());
  }
}

TEST(Failing, CallsChangeNothingAndCanBeTriedAgain) {
  SKIP_WITHOUT_DEVICE();
  Wrapped wrapped;
  const gscx_vulkan_device handles = wrapped.handles();
  {
    World world(handles);
    for (const Call &call : calls()) {
      for (int n = 1;; ++n) {
        SCOPED_TRACE(text(call.name, ", call ", n));
        const std::vector<char> before = world.content();
        wrapped.fail_at(n);
        const gsc_status status = call.run(world);
        const std::string failed = wrapped.failed();
        wrapped.fail_at(0);
        if (failed.empty()) {
          EXPECT_GSC_OK(status);
          if (!call.partly) {
            EXPECT_EQ(world.content() != before, call.changes);
          }
          break;
        }
        seen.insert(failed);
        if (status == GSC_OK) continue;  // one of tidying up
        expect_named(status, failed);
        if (call.partly) {
          ASSERT_GSC_OK(call.run(world));
        } else {
          EXPECT_TRUE(world.content() == before) << failed;
        }
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_EQ(wrapped.live, 0);
  for (const char *name : {"vkCreateShaderModule", "vkCreateComputePipelines", "vkBeginCommandBuffer",
                           "vkEndCommandBuffer", "vkQueueSubmit", "vkWaitForFences", "vkResetFences"}) {
    EXPECT_TRUE(seen.count(name) != 0) << name << " was not called";
  }
}

TEST(Failing, ALostDeviceIsAnErrorInEveryCall) {
  SKIP_WITHOUT_DEVICE();
  Wrapped wrapped;
  const gscx_vulkan_device handles = wrapped.handles();
  {
    World world(handles);
    wrapped.fail_at(1, true);
    for (const Call &call : calls()) {
      EXPECT_GSC_ERROR(call.run(world), GSC_ERROR_DEVICE, "VK_ERROR_DEVICE_LOST", "of no more use");
    }
    vulkan_device()->wait();
  }
  EXPECT_EQ(wrapped.live, 0);
}

}  // namespace
}  // namespace gsc_test
