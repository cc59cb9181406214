// SPDX-License-Identifier: Apache-2.0
// Turns what the caller's callbacks did wrong during a call into the error of that call.
#include "capi/guard.h"

namespace gsc::capi {

void require_no_misuse() {
  const Misuse found = take_misuse();
  if (found.missing == 0 && found.repeated == 0 && !found.threw) return;
  fail(GSC_ERROR_CALLBACK, kOptions.field("parallel_for"),
       "%sleft out %d tasks, which the calling thread ran, and ran %d twice or out of range, which had no effect; "
       "the call has done its work",
       found.threw ? "threw an exception, " : "", found.missing, found.repeated);
}

}  // namespace gsc::capi
