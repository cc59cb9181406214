// SPDX-License-Identifier: Apache-2.0
//
// Fits y = 3x - 1 by least squares with 16-bit gradients, through <gradscaler/gradscaler.hpp>. The scale starts far too
// high on purpose: the first steps overflow and are skipped, and the history shows how the scale settles.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <gradscaler/gradscaler.hpp>
#include <vector>

namespace gs = gradscaler;

int main() try {
  constexpr int kSteps = 1000;
  std::vector<float> weights = {0.0f, 0.0f};  // slope and offset: fp32 master weights
  std::vector<float> exact(2);                // gradients as computed
  std::vector<uint16_t> halfs(2);             // and as stored: fp16

  gs::Context ctx;
  gs::TensorList params(ctx, {gs::tensor(weights)});
  gs::TensorList grads(ctx, {gs::tensor(halfs, gs::DType::fp16)});
  gs::Optimizer adamw(ctx, {.lr = 0.05, .weight_decay = 0.0}, params, grads);
  gs::GradScaler scaler(ctx, {.init_scale = 0x1p24f, .growth_interval = 100, .history_capacity = kSteps});

  for (int step = 0; step < kSteps; ++step) {
    exact = {0.0f, 0.0f};
    for (int i = 0; i < 8; ++i) {
      const float x = 0.25f * static_cast<float>(i) - 1.0f;
      const float error = weights[0] * x + weights[1] - (3.0f * x - 1.0f);
      exact[0] += error * x / 8.0f;
      exact[1] += error / 8.0f;
    }
    scaler.scale(gs::tensor(exact), gs::tensor(halfs, gs::DType::fp16));
    scaler.clip_grad_norm(grads, 1.0);
    scaler.step(adamw);
    scaler.update();
  }

  for (const gsc_history_entry &entry : scaler.get_history_sync()) {
    if (entry.overflow != 0) {
      std::printf("update %d overflowed; scale now %.0f\n", static_cast<int>(entry.update), double{entry.scale});
    }
  }
  const gsc_report report = scaler.get_report_sync(grads);
  std::printf("y = %.3f x + %.3f after %d steps, %d skipped; scale %.0f, last gradient norm %.2g\n", double{weights[0]},
              double{weights[1]}, static_cast<int>(report.updates), static_cast<int>(report.skipped),
              double{report.scale}, report.grad_norm);
  const bool fitted = std::abs(weights[0] - 3.0f) < 0.01f && std::abs(weights[1] + 1.0f) < 0.01f;
  return fitted && report.skipped > 0 ? 0 : 1;
} catch (const gs::Error &error) {
  std::fprintf(stderr, "%s: %s\n", gs::status_get_name(error.status()), error.what());
  return 1;
}
