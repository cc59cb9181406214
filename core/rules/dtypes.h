// SPDX-License-Identifier: Apache-2.0
// The table of dtypes, for kernels, plans and messages. Code that depends on the dtype is instantiated from
// GSC_FOR_EACH_DTYPE, so a new dtype needs only a row, and a dtype that is missing somewhere does not compile.
#pragma once

#include <cstdint>

#include "core/rules/convert.h"
#include "gradscaler/gradscaler.h"

namespace gsc {

/// X(traits) for every dtype.
#define GSC_FOR_EACH_DTYPE(X) \
  X(Fp16)                     \
  X(Bf16)                     \
  X(Fp32)                     \
  X(Fp64)

/// Traits. Stored is an element in memory. Value is the arithmetic type, float or double. If Value is float and Stored
/// is smaller, float must have at least two bits more than the dtype, for round_to_odd.
struct Fp16 {
  using Stored = uint16_t;
  using Value = float;
  static constexpr int32_t kCode = GSC_FP16;
  static constexpr const char *kName = "fp16";
  static constexpr Value kOverflow = 65520.0F;        ///< smallest magnitude that overflows when it is rounded
  static constexpr double kSmallestNormal = 0x1p-14;  ///< below are subnormals
  static constexpr int kLargestExponent = 15;         ///< of the largest finite number
  static constexpr int kSmallestExponent = -24;       ///< of the smallest subnormal
  static constexpr bool kSquaresFit = true;           ///< column sums in Value neither overflow nor vanish
  GSC_HD static Value widen(Stored x) { return fp16_to_fp32(x); }
  GSC_HD static Stored narrow(Value x) { return fp32_to_fp16(x); }
};

struct Bf16 {
  using Stored = uint16_t;
  using Value = float;
  static constexpr int32_t kCode = GSC_BF16;
  static constexpr const char *kName = "bf16";
  static constexpr Value kOverflow = 0x1.ffp127F;
  static constexpr double kSmallestNormal = 0x1p-126;
  static constexpr int kLargestExponent = 127;
  static constexpr int kSmallestExponent = -133;
  static constexpr bool kSquaresFit = false;
  GSC_HD static Value widen(Stored x) { return bf16_to_fp32(x); }
  GSC_HD static Stored narrow(Value x) { return fp32_to_bf16(x); }
};

struct Fp32 {
  using Stored = float;
  using Value = float;
  static constexpr int32_t kCode = GSC_FP32;
  static constexpr const char *kName = "fp32";
  static constexpr Value kOverflow = __builtin_inff();
  static constexpr double kSmallestNormal = 0x1p-126;
  static constexpr int kLargestExponent = 127;
  static constexpr int kSmallestExponent = -149;
  static constexpr bool kSquaresFit = false;
  GSC_HD static Value widen(Stored x) { return x; }
  GSC_HD static Stored narrow(Value x) { return x; }
};

struct Fp64 {
  using Stored = double;
  using Value = double;
  static constexpr int32_t kCode = GSC_FP64;
  static constexpr const char *kName = "fp64";
  static constexpr Value kOverflow = __builtin_inf();
  static constexpr double kSmallestNormal = 0x1p-1022;
  static constexpr int kLargestExponent = 1023;
  static constexpr int kSmallestExponent = -1074;
  static constexpr bool kSquaresFit = true;
  GSC_HD static Value widen(Stored x) { return x; }
  GSC_HD static Stored narrow(Value x) { return x; }
};

/// X(code, name, bytes) for the dtypes that only optimizer state has: codes, remainders and scales. Nothing but an
/// optimizer and a conversion reads or writes them (core/rules/state_codes.h, split.h, flash_codes.h).
#define GSC_FOR_EACH_STATE_DTYPE(X)        \
  X(GSC_FP8_E4M3, "fp8_e4m3", 1)           \
  X(GSC_UINT8_LOG, "uint8_log", 1)         \
  X(GSC_UFP16_E6M10, "ufp16_e6m10", 2)     \
  X(GSC_INT8, "int8", 1)                   \
  X(GSC_INT16, "int16", 2)                 \
  X(GSC_FP8_E8M0, "fp8_e8m0", 1)           \
  X(GSC_INT8_SOFTSIGN, "int8_softsign", 1) \
  X(GSC_UINT8_SQRT, "uint8_sqrt", 1)

/// Bytes of an element; 0 for an unsupported dtype. One number has them all, four bits a code: a chain of comparisons
/// would take registers that CUDA kernels do not have.
GSC_HD constexpr int64_t dtype_bytes(int32_t dtype) {
#define GSC_BYTES(D) | uint64_t{sizeof(D::Stored)} << (4 * D::kCode)
#define GSC_STATE_BYTES(code, name, bytes) | uint64_t{bytes} << (4 * (code))
  constexpr uint64_t kBytes = 0 GSC_FOR_EACH_DTYPE(GSC_BYTES) GSC_FOR_EACH_STATE_DTYPE(GSC_STATE_BYTES);
#undef GSC_STATE_BYTES
#undef GSC_BYTES
  return dtype >= 0 && dtype < 16 ? static_cast<int64_t>(kBytes >> (4 * dtype) & 15) : 0;
}

/// Whether a dtype has values that every operation takes.
GSC_HD constexpr bool is_element_dtype(int32_t dtype) {
#define GSC_IS(D) dtype == D::kCode ||
  return GSC_FOR_EACH_DTYPE(GSC_IS) false;
#undef GSC_IS
}

/// Whether a tensor is computed in fp64; in fp32 if not.
GSC_HD constexpr bool is_wide(int32_t dtype) {
#define GSC_WIDE(D) dtype == D::kCode ? sizeof(D::Value) == sizeof(double):
  return GSC_FOR_EACH_DTYPE(GSC_WIDE) false;
#undef GSC_WIDE
}

/// f(traits) for a dtype that has been validated.
GSC_ANY_SPACE
template <typename F>
GSC_HD decltype(auto) with_dtype(int32_t dtype, const F &f) {
  switch (dtype) {
#define GSC_CASE(D) \
  case D::kCode:    \
    return f(D{});
    GSC_FOR_EACH_DTYPE(GSC_CASE)
#undef GSC_CASE
  }
  __builtin_unreachable();
}

/// An element of dtype D from either arithmetic type, rounded once.
template <typename D>
GSC_HD typename D::Stored narrow_to(float x) {
  return D::narrow(static_cast<typename D::Value>(x));
}
template <typename D>
GSC_HD typename D::Stored narrow_to(double x) {
  if constexpr (sizeof(typename D::Stored) < sizeof(float)) {
    return D::narrow(round_to_odd(x));
  } else {
    return D::narrow(static_cast<typename D::Value>(x));
  }
}

/// "fp16", "bf16" and so on, or "unknown dtype".
constexpr const char *dtype_name(int32_t dtype) {
#define GSC_NAME(D) dtype == D::kCode ? D::kName:
#define GSC_STATE_NAME(code, name, bytes) dtype == (code) ? name:
  return GSC_FOR_EACH_DTYPE(GSC_NAME) GSC_FOR_EACH_STATE_DTYPE(GSC_STATE_NAME) "unknown dtype";
#undef GSC_STATE_NAME
#undef GSC_NAME
}

}  // namespace gsc
