// SPDX-License-Identifier: Apache-2.0
// The coefficients of groups or tensors, one by each invocation.
#include "workgroup.glsl"

void main() {
  const ApplyArgs a = load_ApplyArgs(push.args);
  const int64_t rows = coefficient_rows(a);
  for (int64_t row = WORKGROUP * kThreads + THREAD; row < rows; row += WORKGROUPS * kThreads) prepare_row(a, row);
}
