// SPDX-License-Identifier: Apache-2.0
// The coefficients of groups or tensors, one by each invocation.
#include "workgroup.glsl"

void main() {
  ApplyArgs a = load_ApplyArgs(push.args);
  a.step.variant = kSpecial;  // so that a driver compiles the one formula
  a.step.averages = averages_iterates(kSpecial);
  const int64_t rows = has_tensor_coefficients(a.step) ? a.grads.size : int64_t(a.step.group_count);
  for (int64_t row = WORKGROUP * kThreads + THREAD; row < rows; row += WORKGROUPS * kThreads) prepare_row(a, row);
}
