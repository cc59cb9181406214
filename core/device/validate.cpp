// SPDX-License-Identifier: Apache-2.0
#include "core/device/validate.h"

#include <cctype>
#include <optional>

#include "core/base/decimal.h"
#include "core/rules/dtypes.h"
#include "core/rules/state_conversion.h"

namespace gsc {
namespace {

// Elements of a tensor and of a list: beyond any device's memory, and few enough that the plan for an uninitialized
// count takes 400 MB and not all memory.
constexpr int64_t kMaxElements = int64_t{1} << 40;

// Tensors of a list. An uninitialized count is caught here, not by reading that many tensors.
constexpr int64_t kMaxTensors = int64_t{1} << 24;

/// Whether a tensor of state may have a dtype, and whether one that is converted may: see StateDtypes.
bool is_state_dtype(int32_t dtype) {
  return dtype_bytes(dtype) > 0 && !is_element_dtype(dtype) && dtype != GSC_FP8_E8M0 && !is_flash_code(dtype);
}
bool is_accepted(int32_t dtype) { return is_element_dtype(dtype) || is_state_dtype(dtype); }
bool is_converted(int32_t dtype) {
  return dtype == GSC_FP32 || dtype == GSC_BF16 || is_state_dtype(dtype) || is_flash_code(dtype);
}

/// The first field that does not describe the scales of this dtype, or is for later versions; none if all are right.
std::optional<Literal> wrong_field(const gsc_tensor &t) {
  const int32_t scale_dtype = scale_dtype_of(t.dtype);
  const bool grouped = scale_dtype != 0;
  if (t.scale_dtype != scale_dtype) return Literal("scale_dtype");
  if ((t.scale != nullptr) != (grouped && t.count != 0)) return Literal("scale");
  const auto scale_size = static_cast<uintptr_t>(dtype_bytes(scale_dtype));
  if (scale_size > 1 && reinterpret_cast<uintptr_t>(t.scale) % scale_size != 0) return Literal("scale");
  if (t.scale_block_rows != (grouped ? 1 : 0)) return Literal("scale_block_rows");
  if (t.scale_block_columns != (grouped ? kStateGroup : 0)) return Literal("scale_block_columns");
  if (t.columns != 0) return Literal("columns");
  if (t.reserved[0] != 0) return Literal("reserved[0]");
  if (t.reserved[1] != 0) return Literal("reserved[1]");
  return std::nullopt;
}

const char *scales_needed_by(int32_t dtype) {
  switch (scale_dtype_of(dtype)) {
    case GSC_FP8_E8M0:
      return "is wrong; this dtype has a scale of dtype GSC_FP8_E8M0 for each block of 1 x 32 elements";
    case GSC_INT16:
      return "is wrong; this dtype has an aligned scale of dtype GSC_INT16 for each block of 1 x 32 elements";
    case GSC_FP16:
      return "is wrong; this dtype has an aligned scale of dtype GSC_FP16 for each block of 1 x 32 elements";
    default:
      return "is not 0; this version does not support it";
  }
}

}  // namespace

DtypeChoices::DtypeChoices(bool (*accepts)(int32_t dtype)) {
  const int32_t dtypes[] = {
#define GSC_CODE(D) D::kCode,
#define GSC_STATE_CODE(code, name, bytes) code,
      GSC_FOR_EACH_DTYPE(GSC_CODE) GSC_FOR_EACH_STATE_DTYPE(GSC_STATE_CODE)
#undef GSC_STATE_CODE
#undef GSC_CODE
  };
  int left = 0;
  for (const int32_t dtype : dtypes) left += accepts(dtype) ? 1 : 0;
  char *out = text_;
  const auto append = [&](const char *word, bool upper) {
    for (; *word != '\0' && out + 1 < text_ + sizeof text_; ++word) {
      *out++ = upper ? static_cast<char>(std::toupper(*word)) : *word;
    }
  };
  for (const int32_t dtype : dtypes) {
    if (!accepts(dtype)) continue;
    append("GSC_", true);
    append(dtype_name(dtype), true);
    --left;
    append(left > 1 ? ", " : (left == 1 ? " or " : ""), false);
  }
}

void validate_tensor_count(int64_t count) {
  if (count >= 0 && count <= kMaxTensors) return;
  refuse_value("count", count, "a number of tensors from 0 to 2^24");
}

void validate_tensors(const gsc_tensor *tensors, int64_t count, const Argument &what, StateDtypes state_dtypes,
                      const Names *names) {
  validate_tensor_count(count);
  if (count > 0 && tensors == nullptr) refuse(what, "is NULL");
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    const gsc_tensor &t = tensors[i];
    const int64_t size = dtype_bytes(t.dtype);
    const bool is_state = is_state_dtype(t.dtype) || is_flash_code(t.dtype);
    const StateDtypes needed = is_flash_code(t.dtype) ? StateDtypes::kConverted : StateDtypes::kAccepted;
    if (!is_element_dtype(t.dtype) && !(is_state && state_dtypes >= needed)) {
      const char *who = needed == StateDtypes::kConverted ? "; only gsc_ops_convert_state takes it"
                                                          : "; only optimizer state may have it";
      const DtypeChoices choices(state_dtypes == StateDtypes::kRefused ? [](int32_t d) { return is_element_dtype(d); }
                                 : state_dtypes == StateDtypes::kAccepted ? is_accepted
                                                                          : is_converted);
      refuse(what.tensor(i).field("dtype"), "is %d; it must be %s%s%s", t.dtype, choices.c_str(), is_state ? who : "",
             NameSuffix(names, i).c_str());
    }
    if (const auto field = wrong_field(t)) {
      refuse(what.tensor(i).field(*field), "%s%s", scales_needed_by(t.dtype), NameSuffix(names, i).c_str());
    }
    if (t.count < 0 || t.count > kMaxElements) {
      refuse(what.tensor(i).field("count"), "is %lld; it must be in 0..2^40%s", static_cast<long long>(t.count),
             NameSuffix(names, i).c_str());
    }
    total += t.count;
    if (total > kMaxElements) {
      refuse(what.tensor(i), "and the tensors before it have more than 2^40 elements together%s",
             NameSuffix(names, i).c_str());
    }
    if (t.count == 0) continue;
    if (t.data == nullptr) {
      refuse(what.tensor(i).field("data"), "is NULL but its count is %lld%s", static_cast<long long>(t.count),
             NameSuffix(names, i).c_str());
    }
    if (reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(size) != 0) {
      refuse(what.tensor(i).field("data"), "is %p, which is not aligned to its dtype %s (%lld bytes)%s", t.data,
             dtype_name(t.dtype), static_cast<long long>(size), NameSuffix(names, i).c_str());
    }
  }
}

}  // namespace gsc
