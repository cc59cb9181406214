// SPDX-License-Identifier: Apache-2.0
// Division and square root, rounded to nearest even as IEEE 754 says, by integers: Vulkan promises about 2.5 units in the
// last place. Subnormals count as what they are.

/// A finite number that is not 0: significand * 2^exponent, its highest bit being bit 52 or 23.
struct Parts {
  uint64_t significand;
  int exponent;
};
Parts parts_of(float x) {
  const uint bits = floatBitsToUint(x) & 0x7fffffffu;
  uint significand = bits & 0x7fffffu;
  int exponent = int(bits >> 23);
  if (exponent == 0) {
    const int shift = 23 - findMSB(significand);
    significand <<= shift;
    exponent = 1 - shift;
  } else {
    significand |= 0x800000u;
  }
  return Parts(uint64_t(significand), exponent - 150);
}
Parts parts_of(double x) {
  const uint64_t bits = double_bits(x) & 0x7ffffffffffffffful;
  uint64_t significand = bits & 0xffffffffffffful;
  int exponent = int(bits >> 52);
  if (exponent == 0) {
    const uint high = uint(significand >> 32);
    const int shift = 52 - (high != 0u ? 32 + findMSB(high) : findMSB(uint(significand)));
    significand <<= shift;
    exponent = 1 - shift;
  } else {
    significand |= 0x10000000000000ul;
  }
  return Parts(significand, exponent - 1075);
}

/// significand * 2^exponent, rounded to `digits` bits and as the smallest exponent of their format requires. Bit 0 of the
/// significand is sticky, and its highest bit is bit digits + 1 or digits + 2. The result is the bits of the format
/// without sign; `smallest` is the exponent of its smallest subnormal.
uint64_t rounded_bits(uint64_t significand, int exponent, int digits, int smallest) {
  int drop = (significand >> (digits + 2)) != 0ul ? 3 : 2;
  drop = max(drop, smallest - exponent);
  if (drop > digits + 3) return 0ul;
  const uint64_t half_ = 1ul << (drop - 1);
  const uint64_t rest = significand & ((1ul << drop) - 1ul);
  uint64_t kept = significand >> drop;
  if (rest > half_ || (rest == half_ && (kept & 1ul) != 0ul)) kept += 1ul;
  const int field = exponent + drop - smallest;  // of a normal number, less 1: its highest bit adds 1 to the field
  return (uint64_t(field) << (digits - 1)) + kept;
}

/// The quotient's magnitude if an operand is 0, inf or NaN; `a` and `b` are the bits of magnitudes, `inf` those of inf.
/// `result` is not set, and false is returned, for other operands.
bool divide_special(uint64_t a, uint64_t b, uint64_t inf, uint64_t quiet, out uint64_t result) {
  result = 0ul;
  if (a > inf) {
    result = a | quiet;
  } else if (b > inf) {
    result = b | quiet;
  } else if (a == inf ? b == inf : a == 0ul && b == 0ul) {
    result = inf | quiet;
  } else if (a == inf || b == 0ul) {
    result = inf;
  } else {
    return a == 0ul || b == inf;
  }
  return true;
}

float exact_divide(float a, float b) {
  const uint sign_ = (floatBitsToUint(a) ^ floatBitsToUint(b)) & 0x80000000u;
  uint64_t special;
  if (divide_special(uint64_t(floatBitsToUint(a) & 0x7fffffffu), uint64_t(floatBitsToUint(b) & 0x7fffffffu),
                     0x7f800000ul, 0x400000ul, special)) {
    return uintBitsToFloat(sign_ | uint(special));
  }
  const Parts x = parts_of(a);
  const Parts y = parts_of(b);
  // 26 or 27 bits of the quotient.
  const uint64_t dividend = x.significand << 26;
  uint64_t quotient = dividend / y.significand;
  if (quotient * y.significand != dividend) quotient |= 1ul;
  const uint64_t bits = rounded_bits(quotient, x.exponent - y.exponent - 26, 24, -149);
  return uintBitsToFloat(sign_ | uint(min(bits, 0x7f800000ul)));
}

double exact_divide(double a, double b) {
  const uint64_t sign_ = (double_bits(a) ^ double_bits(b)) & 0x8000000000000000ul;
  uint64_t special;
  if (divide_special(double_bits(a) & 0x7ffffffffffffffful, double_bits(b) & 0x7ffffffffffffffful,
                     0x7ff0000000000000ul, 0x8000000000000ul, special)) {
    return bits_double(sign_ | special);
  }
  const Parts x = parts_of(a);
  const Parts y = parts_of(b);
  // 55 or 56 bits of the quotient, eleven at a time.
  uint64_t quotient = x.significand / y.significand;
  uint64_t rest = x.significand - quotient * y.significand;
  for (int i = 0; i < 5; ++i) {
    rest <<= 11;
    const uint64_t digit = rest / y.significand;
    rest -= digit * y.significand;
    quotient = quotient << 11 | digit;
  }
  if (rest != 0ul) quotient |= 1ul;
  const uint64_t bits = rounded_bits(quotient, x.exponent - y.exponent - 55, 53, -1074);
  return bits_double(sign_ | min(bits, 0x7ff0000000000000ul));
}

float exact_root(float x) {
  const uint bits = floatBitsToUint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return uintBitsToFloat(bits | 0x400000u);
  if ((bits & 0x7fffffffu) == 0u || bits == 0x7f800000u) return x;
  if ((bits & 0x80000000u) != 0u) return uintBitsToFloat(0xffc00000u);
  Parts p = parts_of(x);
  // 26 bits of the root are enough: those of a radicand of 51 or 52 bits with an even exponent.
  const int shift = (p.exponent & 1) != 0 ? 27 : 28;
  const uint64_t radicand = p.significand << shift;
  uint64_t root = uint64_t(sqrt(float(radicand)));
  while (root * root > radicand) root -= 1ul;
  while ((root + 1ul) * (root + 1ul) <= radicand) root += 1ul;
  if (root * root != radicand) root |= 1ul;
  return uintBitsToFloat(uint(rounded_bits(root, (p.exponent - shift) / 2, 24, -149)));
}

double exact_root(double x) {
  const uint64_t bits = double_bits(x);
  if ((bits & 0x7ffffffffffffffful) > 0x7ff0000000000000ul) return bits_double(bits | 0x8000000000000ul);
  if ((bits & 0x7ffffffffffffffful) == 0ul || bits == 0x7ff0000000000000ul) return x;
  if ((bits >> 63) != 0ul) return bits_double(0xfff8000000000000ul);
  Parts p = parts_of(x);
  // Digit by digit: 55 bits of the root of a radicand of 109 or 110 bits with an even exponent, two bits at a time.
  const int extra = p.exponent & 1;
  uint64_t left = p.significand << (10 + extra);  // its highest bit is bit 62 or 63
  uint64_t rest = 0ul;
  uint64_t root = 0ul;
  [[dont_unroll]] for (int i = 0; i < 55; ++i) {
    rest = rest << 2 | left >> 62;
    left <<= 2;
    const uint64_t trial = root << 2 | 1ul;
    root <<= 1;
    if (rest >= trial) {
      rest -= trial;
      root |= 1ul;
    }
  }
  if (rest != 0ul) root |= 1ul;
  // p.significand * 2^(10 + extra) is the radicand's upper 64 bits of 110: its unit is 2^(exponent - 10 - extra - 46).
  return bits_double(rounded_bits(root, (p.exponent - 56 - extra) / 2, 53, -1074));
}
