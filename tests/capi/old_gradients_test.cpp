// SPDX-License-Identifier: Apache-2.0
//
// Gradients of a backward pass before the scaler's last update: of the second of two optimizers, if update is called
// between their steps. They are scaled by the old scale.
#include "tests/support/objects.h"

namespace gsc_test {
namespace {

class OldGradients : public OnCpu {
 protected:
  OldGradients() { use(scaler_options(8.0f, 1)); }
  void use(const gsc_scaler_options &options) { scaler = make_scaler(context, options); }
  /// Scales the gradient of the loss, from which both gradients come.
  void backward() {
    EXPECT_GSC_OK(gsc_scaler_scale(scaler, &one, &loss, 1, nullptr));
    g1.set(0, loss_gradient.get(0));
    g2.set(0, loss_gradient.get(0));
  }
  gsc_status step(const Optimizer &optimizer) const { return gsc_scaler_step(scaler, optimizer, nullptr); }
  void update() const { EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr)); }

  Buffer unit{GSC_FP32, 1}, loss_gradient{GSC_FP32, 1}, p1{GSC_FP32, 1}, p2{GSC_FP32, 1}, g1{GSC_FP32, 1},
      g2{GSC_FP32, 1};
  gsc_tensor one = (unit.set(0, 1.0), unit.tensor()), loss = loss_gradient.tensor();
  List params1 = make_list(context, p1), params2 = make_list(context, p2), grads1 = make_list(context, g1),
       grads2 = make_list(context, g2);
  Optimizer first = make_optimizer(context, sgd_options(), params1, grads1),
            second = make_optimizer(context, sgd_options(), params2, grads2);
  Scaler scaler;
};

TEST_F(OldGradients, AreRefused) {
  backward();
  EXPECT_GSC_OK(step(first));
  update();
  EXPECT_BAD_STATE(step(second), "optimizer", "gsc_scaler_scale");
  EXPECT_BAD_STATE(gsc_scaler_unscale(scaler, grads2, nullptr), "grads", "gsc_scaler_scale");
  EXPECT_BAD_STATE(gsc_scaler_check(scaler, grads2, nullptr), "grads");
  EXPECT_BAD_STATE(gsc_scaler_step_and_update(scaler, second, nullptr), "optimizer");
  int64_t left = 0;
  EXPECT_BAD_STATE(gsc_scaler_step_slice(scaler, second, 1, &left, nullptr), "optimizer");
  EXPECT_EQ(p2.get(0), 0.0);
  EXPECT_EQ(g2.get(0), 8.0);
  backward();
  EXPECT_GSC_OK(step(first));
  EXPECT_GSC_OK(step(second));
  EXPECT_EQ(p2.get(0), -1.0);
  EXPECT_EQ(p1.get(0), -2.0);
  update();
}

TEST_F(OldGradients, OneUpdateForBothIsRight) {
  for (int i = 1; i < 4; ++i) {
    backward();
    EXPECT_GSC_OK(step(first));
    EXPECT_GSC_OK(step(second));
    update();
    EXPECT_EQ(p2.get(0), -i);
  }
}

TEST_F(OldGradients, AProgramThatAsksForTheScaleIsFree) {
  backward();
  EXPECT_GSC_OK(step(first));
  update();
  g2.set(0, scale_of(scaler));
  EXPECT_GSC_OK(step(second));
  update();
  EXPECT_GSC_OK(step(second));  // no call of scale in the iteration before: nothing is known
  update();
}

TEST_F(OldGradients, AScaleThatIsSetIsKnown) {
  backward();
  EXPECT_GSC_OK(step(first));
  update();
  EXPECT_GSC_OK(gsc_scaler_set_scale(scaler, 4.0f, nullptr));
  EXPECT_GSC_OK(step(second));
}

TEST_F(OldGradients, AScaleInDeviceMemoryMayBeReadAtAnyTime) {
  auto state = with_size<gsc_device_state>();
  EXPECT_GSC_OK(gsc_scaler_get_device_state(scaler, nullptr, &state));
  backward();
  EXPECT_GSC_OK(step(first));
  update();
  EXPECT_GSC_OK(step(second));
}

TEST_F(OldGradients, ADisabledScalerHasNoScale) {
  use(disabled_options());
  backward();
  EXPECT_GSC_OK(step(first));
  update();
  EXPECT_GSC_OK(step(second));
}

}  // namespace
}  // namespace gsc_test
