// SPDX-License-Identifier: Apache-2.0
// A call that goes through an optimizer's gradients.
#pragma once

#include "capi/guard.h"
#include "core/objects/optimizer.h"

namespace gsc::capi {

/// Holds the optimizer and its list of gradients, so that callbacks can change neither.
class StepCall {
 public:
  explicit StepCall(const gsc_optimizer *optimizer)
      : optimizer_(optimizer, "optimizer"), grads_(optimizer_->grads(), "optimizer") {}
  Optimizer &operator*() const { return *optimizer_; }
  Optimizer *operator->() const { return &*optimizer_; }

 private:
  InCall<Optimizer> optimizer_;
  InCall<TensorList> grads_;
};

}  // namespace gsc::capi
