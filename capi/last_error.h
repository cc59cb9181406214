// SPDX-License-Identifier: Apache-2.0
// The most recent failure on each thread, which the gsc_error functions tell.
#pragma once

#include "gradscaler/gradscaler.h"

namespace gsc::capi {

/// Stores the failure for this thread, with the message "function: what", and returns its status. `details` lacks the
/// function.
gsc_status set_error(const gsc_error &details, const char *function, const char *what) noexcept;

}  // namespace gsc::capi
