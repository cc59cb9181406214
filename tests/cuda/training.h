// SPDX-License-Identifier: Apache-2.0
//
// Shared by the tests of the backend's host code: the objects of a training step on an emulated device.
#ifndef GRADSCALER_TESTS_CUDA_TRAINING_H
#define GRADSCALER_TESTS_CUDA_TRAINING_H
#include "tests/cuda/twin.h"

namespace gsc_test {

namespace emulation = gsc::cuda::emulation;

/// A step's objects on the emulated device.
struct Training {
  explicit Training(const Context &context, int tensors = 3, int64_t count = 1000, int32_t param_dtype = GSC_FP32,
                    const gsc_optimizer_options &options = optimizer_options(GSC_ADAMW))
      : scaler(make_scaler(context, 1024.0f)) {
    Random random(5);
    for (int i = 0; i < tensors; ++i) {
      add_filled(p, random, param_dtype, count);
      add_filled(g, random, GSC_FP16, count);
    }
    params = make_list(context, device_tensors(p));
    grads = make_list(context, device_tensors(g));
    optimizer = make_optimizer(context, options, params, grads);
  }
  gsc_status step(gsc_stream stream = nullptr) const { return gsc_scaler_step_and_update(scaler, optimizer, stream); }
  /// As a finalizer does.
  void destroy() {
    optimizer.reset();
    scaler.reset();
    params.reset();
    grads.reset();
  }
  Twins p, g;
  List params, grads;
  Scaler scaler;
  Optimizer optimizer;
};

}  // namespace gsc_test
#endif
