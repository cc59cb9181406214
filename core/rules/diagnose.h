// SPDX-License-Identifier: Apache-2.0
// The results of a diagnosis. Compiled for host and device.
#pragma once

#include <cstdint>

#include "core/rules/hd.h"
#include "gradscaler/gradscaler.h"

namespace gsc {

/// The part of one chunk in a gsc_tensor_diagnosis.
struct ChunkDiagnosis {
  int64_t inf_count, nan_count, zero_count, subnormal_count;
  int64_t first_nonfinite;  ///< from the start of the chunk, -1: none
  double amax, amin, sum_sq;
};

/// The bin of a finite magnitude that is not 0, from its bits as a double. The exponent field is floor(log2(x)): every
/// subnormal of the smaller dtypes is a normal double, and those of fp64 lie below bin 0.
GSC_HD int exponent_bin(uint64_t magnitude_bits) {
  const int bin = static_cast<int>(magnitude_bits >> 52) - 1023 - GSC_EXPONENT_MIN;
  return bin < 0 ? 0 : (bin < GSC_EXPONENT_BINS ? bin : GSC_EXPONENT_BINS - 1);
}

}  // namespace gsc
