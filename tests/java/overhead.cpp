// SPDX-License-Identifier: Apache-2.0
//
// Measures a step and an update in C on a list of one element: the smallest work there is, so that what remains is the
// cost of the calls, to which the C++ classes add nothing. Prints nanoseconds, the least of many rounds, for
// compare_overhead.cmake. The programs in the other languages do the same.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <gradscaler/gradscaler.hpp>

namespace gs = gradscaler;

int main() {
  constexpr int kCalls = 1000;
  float weight = 0;
  float gradient = 0;
  gs::Context context({.num_threads = 1});
  gs::TensorList params(context, {gs::tensor(&weight, 1, gs::DType::fp32)});
  gs::TensorList grads(context, {gs::tensor(&gradient, 1, gs::DType::fp32)});
  gs::Optimizer sgd(context, {.kind = gs::OptimizerKind::sgd}, params, grads);
  gs::GradScaler scaler(context);
  double least = 1e18;
  for (int round = 0; round < 300; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) {
      scaler.step(sgd);
      scaler.update();
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    least = std::min(least, took.count() / kCalls);
  }
  std::printf("%.0f\n", least);
}
