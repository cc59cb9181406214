// SPDX-License-Identifier: Apache-2.0
//
// Steps in slices on the emulated device, of which a runtime call fails: what follows is as without the failure, and the
// iteration has its list once.
#include "tests/cuda/training.h"

namespace gsc_test {
namespace {

struct DeviceSlices : testing::Test {
  const Contexts contexts;

  /// Ends a step and its iteration, and returns what the scaler and the optimizer say of them.
  static std::string end(Training &t) {
    int64_t left = 1;
    while (left > 0) {
      EXPECT_GSC_OK(gsc_scaler_step_slice(t.scaler, t.optimizer, 1, &left, nullptr));
      if (testing::Test::HasFailure()) return "";
    }
    EXPECT_GSC_OK(gsc_scaler_update(t.scaler, nullptr));
    const gsc_report report = report_of(t.scaler);
    return text(report.grad_norm, ' ', report.updates, ' ', report.skipped, ' ', applied_steps(t.optimizer), ' ',
                read_device<float>(reinterpret_cast<float *>(t.p[0].device_tensor().data)));
  }
};

/// In the first slice, and in later ones.
TEST_F(DeviceSlices, GoOnAfterAFailure) {
  for (const int32_t kind : {GSC_ADAMW, GSC_LAMB, GSC_ADAMW_SCHEDULE_FREE}) {
    for (const bool checked : {false, true}) {
      for (const int before : {0, 1, 2}) {
        const auto make = [&] {
          auto t = std::make_unique<Training>(contexts.device, 2, 300, GSC_FP32, optimizer_options(kind));
          if (checked) {
            EXPECT_GSC_OK(gsc_scaler_check(t->scaler, t->grads, nullptr));
          }
          int64_t left = 0;
          for (int i = 0; i < before; ++i) {
            EXPECT_GSC_OK(gsc_scaler_step_slice(t->scaler, t->optimizer, 1, &left, nullptr));
          }
          return t;
        };
        const std::string expected = end(*make());
        for (int64_t call = 0;; ++call) {
          SCOPED_TRACE(text("kind ", kind, checked ? ", checked" : "", ", after ", before, ", call ", call));
          ASSERT_LT(call, 100);
          const auto t = make();
          int64_t left = -1;
          emulation::fail_call(call);
          const gsc_status status = gsc_scaler_step_slice(t->scaler, t->optimizer, 1, &left, nullptr);
          emulation::fail_call(-1);
          if (status == GSC_OK) break;
          EXPECT_EQ(left, -1);
          EXPECT_EQ(end(*t), expected);
          if (HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gsc_test
