// SPDX-License-Identifier: Apache-2.0
// Checks the tensors that a caller passes in, before anything is read or allocated.
#pragma once

#include <cstdint>

#include "core/base/error.h"
#include "core/device/names.h"
#include "gradscaler/gradscaler.h"

namespace gsc {

/// "GSC_FP16, GSC_BF16 or GSC_FP32": all dtypes that `accepts` takes, for a message that refuses another.
class DtypeChoices {
 public:
  explicit DtypeChoices(bool (*accepts)(int32_t dtype));
  const char *c_str() const { return text_; }

 private:
  char text_[256] = "";
};

/// Checks a number of tensors before anything of that number is read or allocated.
void validate_tensor_count(int64_t count);

/// Whether tensors may have the dtypes and scales of optimizer state, or also those that state is only converted to.
enum class StateDtypes : uint8_t { kRefused, kAccepted, kConverted };

/// Checks the fields of tensors[0..count) and the alignment of their data. `what` is the argument's name, `names`
/// (may be NULL) what the tensors are called.
void validate_tensors(const gsc_tensor *tensors, int64_t count, const Argument &what, StateDtypes state_dtypes,
                      const Names *names = nullptr);

}  // namespace gsc
