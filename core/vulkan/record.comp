// SPDX-License-Identifier: Apache-2.0
// Work on records alone, by one invocation.
#include "workgroup.glsl"

void main() {
  if (WORKGROUP == 0l && THREAD == 0) run_record(load_RecordArgs(push.args));
}
