// SPDX-License-Identifier: Apache-2.0
// The codes of optimizer state, split masters and random bits of core/rules, against definitions that share nothing with
// them: values of codes by ldexp on doubles, rounding by comparing distances, Philox by the known answers of Random123.
// All codes with all scales. Of fp32 every 4099th pattern, in the long form every 61st, under a sanitizer every 65537th.
#include "core/rules/state_codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "core/cpu/lanes.h"
#include "core/rules/flash_codes.h"
#include "core/rules/random.h"
#include "core/rules/split.h"
#include "tests/support/repetition.h"

namespace gsc {
namespace {

/// Expects is_right(x) for patterns of fp32.
template <typename F>
void expect_of_patterns(const F &is_right) {
  const uint64_t step = gsc_test::kSanitized ? 65537 : gsc_test::long_form() ? 61 : 4099;
  for (uint64_t bits = 0; bits <= 0xffffffffULL; bits += step) {
    const float x = from_bits(uint32_t(bits));
    ASSERT_TRUE(is_right(x)) << std::hexfloat << x << ", bits " << bits;
  }
}

template <typename D>
double weight_value(uint16_t weight) {
  return D::widen(weight);
}

/// The distance between a weight and its neighbour away from 0.
template <typename D>
double unit_of(uint16_t weight) {
  const uint16_t magnitude = weight & 0x7fff;
  const bool is_last = magnitude + 1U >= Fraction<D>::kInf;
  const uint16_t below = is_last ? magnitude - 1 : magnitude;
  return weight_value<D>(below + 1) - weight_value<D>(below);
}

/// Weights are rounded half away from 0, which differs from a conversion in ties alone.
template <typename D>
bool is_nearest(float master, uint16_t weight) {
  const uint16_t even = D::narrow(master);
  if (weight == even) return true;
  const double distance = std::fabs(master - weight_value<D>(weight));
  return distance == std::fabs(master - weight_value<D>(even)) &&
         std::fabs(weight_value<D>(weight)) > std::fabs(weight_value<D>(even));
}

template <typename D, typename R>
std::pair<uint16_t, R> divide(float master) {
  const auto parts = Split<D, R>::divide(master);
  return {static_cast<uint16_t>(parts.weight), static_cast<R>(parts.remainder)};
}

TEST(Split, Bf16With16BitsIsExact) {
  expect_of_patterns([](float master) {
    const auto [weight, remainder] = divide<Bf16, int16_t>(master);
    const float back = Split<Bf16, int16_t>::join(weight, remainder);
    if (master != master) return back != back && weight_value<Bf16>(weight) != weight_value<Bf16>(weight);
    return to_bits(back) == to_bits(master) && is_nearest<Bf16>(master, weight);
  });
}

TEST(Split, Fp16With16BitsIsExactInItsRange) {
  expect_of_patterns([](float master) {
    const auto [weight, remainder] = divide<Fp16, int16_t>(master);
    const float back = Split<Fp16, int16_t>::join(weight, remainder);
    const float magnitude = std::fabs(master);
    if (std::signbit(master) != std::signbit(back)) return false;
    if (master != master) return back != back && weight_value<Fp16>(weight) != weight_value<Fp16>(weight);
    if (std::isinf(master)) return back == master;
    if (magnitude > 65504.0F) return back == std::copysign(65504.0F, master);
    if (magnitude >= 0x1p-17F) return to_bits(back) == to_bits(master) && is_nearest<Fp16>(master, weight);
    return std::fabs(double{back} - master) <= 0x1p-41 &&
           std::fabs(weight_value<Fp16>(weight) - master) <= 0x1p-25 + 0x1p-41;
  });
}

/// With 8 bits the error is at most 2^-9 of the weight's unit.
template <typename D>
void expect_eight_bits() {
  constexpr double kLargest = Fraction<D>::kInf == 0x7c00U ? 65504.0 : 0x1.fep127;
  expect_of_patterns([](float master) {
    const auto [weight, remainder] = divide<D, int8_t>(master);
    const float back = Split<D, int8_t>::join(weight, remainder);
    if (master != master) return back != back;
    if (std::isinf(master)) return back == master;
    if (std::fabs(master) > kLargest) return true;
    const double unit = unit_of<D>(weight);
    // fp16 rounds twice below 2^-17, first to a multiple of 2^-40.
    const double first = Fraction<D>::kInf == 0x7c00U && std::fabs(master) < 0x1p-17F ? 0x1p-41 : 0.0;
    return std::fabs(double{back} - master) <= unit * 0x1p-9 + first &&
           std::fabs(weight_value<D>(weight) - master) <= unit * (0.5 + 0x1p-9) + first &&
           std::signbit(master) == std::signbit(back);
  });
}
TEST(Split, Bf16With8Bits) { expect_eight_bits<Bf16>(); }
TEST(Split, Fp16With8Bits) { expect_eight_bits<Fp16>(); }

/// Vectors divide, join and round as single elements do.
template <typename D, typename R>
void expect_vectors_to_split_alike() {
  using V = cpu::VectorLanes;
  expect_of_patterns([](float master) {
    const auto one = Split<D, R>::divide(master);
    const auto vector = Split<D, R>::template divide<V>(V::value(V::all(to_bits(master))));
    uint16_t weights[V::kCount];
    R remainders[V::kCount];
    V::store_low(weights, vector.weight);
    V::store_low(remainders, vector.remainder);
    const float back = Split<D, R>::join(weights[0], remainders[0]);
    const auto backs = V::bits(Split<D, R>::template join<V>(V::load(weights), V::load(remainders)));
    const uint32_t random = to_bits(master) * 0x9E3779B1U >> 16;
    const auto rounded = round_stochastically<D, V>(V::value(V::all(to_bits(master))), V::all(random));
    return weights[V::kCount - 1] == static_cast<uint16_t>(one.weight) &&
           remainders[V::kCount - 1] == static_cast<R>(one.remainder) && backs[V::kCount - 1] == to_bits(back) &&
           rounded[0] == round_stochastically<D>(master, random);
  });
}
TEST(Split, VectorsOfBf16With16Bits) { expect_vectors_to_split_alike<Bf16, int16_t>(); }
TEST(Split, VectorsOfFp16With8Bits) { expect_vectors_to_split_alike<Fp16, int8_t>(); }

/// Every pair of weight and remainder is a master, and that master divides into a pair of the same value.
template <typename D, typename R>
void expect_pairs_to_be_masters() {
  for (uint32_t weight = 0; weight < 0x10000; ++weight) {
    for (int32_t remainder = std::numeric_limits<R>::min(); remainder <= std::numeric_limits<R>::max();
         remainder += sizeof(R) == 1 ? 1 : 997) {
      const float master = Split<D, R>::join(weight, remainder);
      const auto [again, rest] = divide<D, R>(master);
      const float back = Split<D, R>::join(again, rest);
      if (master != master) {
        ASSERT_TRUE(back != back);
      } else {
        ASSERT_EQ(back, std::fabs(master) > 65504.0F && Fraction<D>::kInf == 0x7c00U && !std::isinf(master)
                            ? std::copysign(65504.0F, master)
                            : master)
            << weight << ' ' << remainder;
      }
    }
  }
}
TEST(Split, PairsAreMasters) {
  expect_pairs_to_be_masters<Bf16, int16_t>();
  expect_pairs_to_be_masters<Bf16, int8_t>();
  expect_pairs_to_be_masters<Fp16, int16_t>();
  expect_pairs_to_be_masters<Fp16, int8_t>();
}

TEST(Split, StochasticRoundingTakesEachNeighbourAsOftenAsItIsNear) {
  const auto expect = [](auto dtype, float x) {
    using D = decltype(dtype);
    const uint32_t fixed = Fraction<D>::from(to_bits(std::fabs(x)));
    uint32_t ups = 0;
    for (uint32_t random = 0; random < 0x10000; ++random) {
      const uint16_t weight = round_stochastically<D>(x, random);
      const uint32_t down = fixed >> 16;
      ASSERT_TRUE((weight & 0x7fffU) == down || (weight & 0x7fffU) == down + 1);
      ups += (weight & 0x7fffU) - down;
    }
    EXPECT_EQ(ups, fixed & 0xffffU) << x;
  };
  for (const float x : {1.0F, -1.001F, 3.14159F, 1e-3F, 0x1.8p-20F, -65000.0F, 0.0F}) {
    expect(Fp16{}, x);
    expect(Bf16{}, x);
  }
  EXPECT_EQ(round_stochastically<Fp16>(70000.0F, 0xffff), 0x7bff);  // ends at 65504
  for (const float x : {INFINITY, -INFINITY, NAN}) {
    EXPECT_EQ(Bf16::narrow(x), round_stochastically<Bf16>(x, 0xffff));
    EXPECT_EQ(Fp16::narrow(x), round_stochastically<Fp16>(x, 0xffff));
  }
}

/// The value of a code by the definition of its format.
template <typename C>
double value_of(uint32_t code, uint32_t scale) {
  const auto of_fields = [](int field, double mantissa, int bits, int bias) {
    return field == 0 ? std::ldexp(mantissa, 1 - bias - bits) : std::ldexp(mantissa + (1 << bits), field - bias - bits);
  };
  if constexpr (C::kCode == GSC_BF16) {
    const double magnitude = of_fields(code >> 7 & 0xff, code & 0x7f, 7, 127);
    return (code & 0x8000) != 0 ? -magnitude : magnitude;
  } else if constexpr (C::kCode == GSC_FP8_E4M3) {
    const double magnitude = of_fields(code >> 3 & 15, code & 7, 3, 7);
    return std::ldexp((code & 0x80) != 0 ? -magnitude : magnitude, int(scale) - 127);
  } else {
    // As fp32, also below 2^-126. 0 is 0 alone.
    if (code == 0) return 0.0;
    if (C::kCode == GSC_UFP16_E6M10) return of_fields(int((code >> 10) + scale), code & 0x3ff, 10, 127);
    // Steps of fp32's pattern from the base on, which counts in quarters of an octave: 2^21 of them.
    const uint64_t pattern = uint64_t(scale & 0x3ff) * (1U << 21) + (uint64_t{code} << (16 + (scale >> 10)));
    return of_fields(int(pattern >> 23), double(pattern & 0x7fffff), 23, 127);
  }
}

template <typename C>
uint32_t code_count() {
  return 1U << (8 * sizeof(typename C::Stored));
}

template <typename C>
bool is_nan_code(uint32_t code) {
  if constexpr (C::kCode == GSC_BF16) return (code & 0x7fff) > 0x7f80;
  if constexpr (C::kCode == GSC_FP8_E4M3) return (code & 0x7f) == 0x7f;
  return code + 1 == code_count<C>();
}

/// What inf becomes: of squares it stays, of means it is the largest number.
template <typename C>
float value_of_inf() {
  if constexpr (C::kSlot == Slot::kSecondMoment) return INFINITY;
  return from_bits(static_cast<uint32_t>(C::kMost));
}

template <typename C>
class StateCode : public ::testing::Test {};
using Codes = ::testing::Types<MomentBf16, MomentE4m3, SquareE6m10, SquareLog8>;
TYPED_TEST_SUITE(StateCode, Codes);

/// The scale of a group of these numbers; 0 if the code has none.
template <typename C>
uint32_t scale_of(std::initializer_list<float> group) {
  if constexpr (!C::kGrouped) {
    return 0;
  } else {
    int32_t largest = 0, smallness = 0;
    for (const float x : group) {
      largest = greatest(largest, C::magnitude_of(x));
      smallness = greatest(smallness, smallness_of(C::magnitude_of(x)));
    }
    return C::scale_for(largest, smallness);
  }
}

/// The scales that groups have: of each largest number, with smallest ones down to 0.
template <typename C>
std::vector<uint32_t> scales() {
  std::set<uint32_t> result;
  const int quarter = C::kSlot == Slot::kSecondMoment ? 1 : 4;
  for (int high = 0; high < 255 * 4; high += quarter) {
    for (int octaves = 0; octaves <= 64; octaves = octaves == 0 ? 1 : 2 * octaves) {
      const int low = std::max(high - 4 * octaves, 0);
      result.insert(scale_of<C>({from_bits(uint32_t(high) << 21), from_bits(uint32_t(low) << 21)}));
    }
  }
  return {result.begin(), result.end()};
}

/// Whether a number lies in the range of a scale, where encoding it to 0xffff random bits still gives a number's code.
template <typename C>
bool is_below_its_last(float x, uint32_t scale) {
  if (!std::isfinite(x)) return true;
  if constexpr (C::kCode == GSC_FP8_E4M3) return C::scale_for(C::magnitude_of(x), 0) <= scale;
  if constexpr (C::kSlot == Slot::kSecondMoment) {
    return !std::signbit(x) && x < value_of<C>(code_count<C>() - 3, scale) && x <= from_bits(uint32_t(C::kMost));
  }
  return true;
}

TYPED_TEST(StateCode, EveryCodeHasTheValueOfItsFormat) {
  using C = TypeParam;
  for (const uint32_t scale : scales<C>()) {
    for (uint32_t code = 0; code < code_count<C>(); ++code) {
      const float value = C::decode(code, scale);
      if (is_nan_code<C>(code)) {
        ASSERT_TRUE(value != value) << code;
      } else if (C::kSlot == Slot::kSecondMoment && is_nan_code<C>(code + 1)) {
        ASSERT_EQ(value, INFINITY) << code;
      } else if (std::fabs(value_of<C>(code, scale)) < 0x1p128) {
        ASSERT_EQ(value, value_of<C>(code, scale)) << code << " scale " << scale;
      }
    }
  }
}

/// f(x, scale) for magnitudes below 2, from far below the smallest code up, in groups from it to 1.5.
template <typename C, typename F>
void for_magnitudes(const F &f) {
  for (uint32_t bits = to_bits(0x1p-70F); bits < to_bits(2.0F); bits += 977) {
    const float x = from_bits(bits);
    f(x, scale_of<C>({x, 1.5F}));
  }
}

TYPED_TEST(StateCode, EncodesToTheNearestCode) {
  using C = TypeParam;
  for_magnitudes<C>([&](float x, uint32_t scale) {
    const auto value = [&](uint32_t code) { return value_of<C>(code, scale); };
    const uint32_t code = C::encode(x, scale, kToNearest);
    const double error = std::fabs(value(code) - x);
    ASSERT_FALSE(is_nan_code<C>(code));
    ASSERT_LE(error, std::fabs(value(code + 1) - x)) << std::hexfloat << x;
    // Code 0 stands for 0 alone in second moments.
    const bool may_be_less = code > (C::kSlot == Slot::kSecondMoment ? 1U : 0U);
    if (may_be_less) {
      ASSERT_LE(error, std::fabs(value(code - 1) - x)) << std::hexfloat << x;
    }
    if (C::kSlot == Slot::kSecondMoment) {
      ASSERT_GT(code, 0U);
    }
    if (C::kSlot == Slot::kMoment) {
      const uint32_t negative = C::encode(-x, scale, kToNearest);
      ASSERT_EQ(negative, code | code_count<C>() / 2);
    }
  });
  const uint32_t scale = scale_of<C>({1.5F});
  EXPECT_EQ(C::encode(0.0F, scale, kToNearest), 0);
  EXPECT_EQ(C::encode(0.0F, scale, 0xffff), 0);
  EXPECT_TRUE(is_nan_code<C>(C::encode(NAN, scale, kToNearest)));
}

/// No code of a number but NaN is NaN, and only that of a square that is inf is inf, whatever the rounding.
TYPED_TEST(StateCode, NumbersHaveFiniteCodes) {
  using C = TypeParam;
  const auto expect = [](float x, float others) {
    const uint32_t scale = scale_of<C>({x, others});
    for (const uint32_t bias : {0U, kToNearest, 0xffffU}) {
      const float value = C::decode(C::encode(x, scale, bias), scale);
      if (std::isinf(x)) {
        ASSERT_EQ(value, std::copysign(value_of_inf<C>(), x)) << others;
      } else {
        ASSERT_TRUE(std::isfinite(value)) << std::hexfloat << x << " beside " << others << ", bias " << bias;
      }
    }
  };
  for (const float others : {0.0F, 1.0F, 0x1.fffffep127F, INFINITY}) {
    expect_of_patterns([&](float x) {
      if (x == x && !(C::kSlot == Slot::kSecondMoment && std::signbit(x))) expect(x, others);
      return !::testing::Test::HasFatalFailure();
    });
    for (const float x : {0x1.fffffep127F, 0x1.fep127F, 0x1.ep127F, 0x1p127F, INFINITY}) expect(x, others);
    if (C::kSlot == Slot::kMoment) expect(-INFINITY, others);
  }
}

TYPED_TEST(StateCode, VectorsAreCodedAsSingleElements) {
  using C = TypeParam;
  using V = cpu::VectorLanes;
  const std::vector<uint32_t> all_scales = scales<C>();
  size_t next = 0;
  expect_of_patterns([&](float x) {
    const uint32_t scale = all_scales[next++ % all_scales.size()];
    if (!is_below_its_last<C>(x, scale)) return true;  // of a larger group
    const uint32_t bias = to_bits(x) * 0x9E3779B1U >> 16;
    const uint32_t code = C::encode(x, scale, bias);
    const auto codes = C::template encode<V>(V::value(V::all(to_bits(x))), V::all(scale), V::all(bias));
    const auto values = V::bits(C::template decode<V>(codes, V::all(scale)));
    typename C::Stored stored[V::kCount];
    V::store_low(stored, codes);
    return codes[V::kCount - 1] == code && values[0] == to_bits(C::decode(code, scale)) &&
           V::load(stored)[V::kCount - 1] == code;
  });
}

TYPED_TEST(StateCode, StochasticRoundingTakesEachNeighbourAsOftenAsItIsNear) {
  using C = TypeParam;
  const uint32_t scale = scale_of<C>({1.5F, 0x1p-10F});
  for (const float x : {1.0F, 1.0001F, 1.99F, 0.3F, 0x1.234p-5F, 0x1.8p-7F, 0x1.6p-12F}) {
    const uint32_t down = C::encode(x, scale, 0);
    const double below = value_of<C>(down, scale), above = value_of<C>(down + 1, scale);
    if (below > x) continue;  // the smallest code of a second moment
    uint32_t ups = 0;
    for (uint32_t random = 0; random < 0x10000; ++random) {
      const uint32_t code = C::encode(x, scale, random);
      ASSERT_TRUE(code == down || code == down + 1) << x;
      ups += code - down;
    }
    const double chance = (x - below) / (above - below);
    EXPECT_EQ(ups, static_cast<uint32_t>(chance * 0x1p16)) << std::hexfloat << x;
  }
}

TYPED_TEST(StateCode, CodesOfAGroupAreEncodedAsThemselves) {
  using C = TypeParam;
  for (const uint32_t scale : scales<C>()) {
    for (uint32_t code = 0; code < code_count<C>(); ++code) {
      const float x = C::decode(code, scale);
      if (!std::isfinite(x) || !is_below_its_last<C>(x, scale)) continue;  // of a larger group
      for (const uint32_t bias : {0U, kToNearest, 0xffffU}) {
        ASSERT_EQ(to_bits(C::decode(C::encode(x, scale, bias), scale)), to_bits(x)) << code << " scale " << scale;
      }
    }
  }
}

/// The largest and the smallest of a group have codes on both sides of them, up to the widest range.
TYPED_TEST(StateCode, TheEndsOfAGroupFitForEveryExponent) {
  using C = TypeParam;
  if constexpr (C::kSlot == Slot::kMoment) GTEST_SKIP() << "means have 0 below them";
  constexpr int kWidest = sizeof(typename C::Stored) == 1 ? 31 : 61;
  for (int exponent = 64; exponent < 254; ++exponent) {
    for (int octaves = 0; octaves <= kWidest; ++octaves) {
      for (const uint32_t mantissa : {0U, 1U, 0x400000U, 0x7fffffU}) {
        const float high = from_bits(uint32_t(exponent) << 23 | mantissa);
        const float low = std::ldexp(high, -octaves);
        const uint32_t scale = scale_of<C>({high, low});
        for (const float x : {high, low}) {
          const uint32_t down = C::encode(x, scale, 0), up = C::encode(x, scale, 0xffff);
          ASSERT_LE(value_of<C>(down, scale), x) << high << ' ' << octaves;
          ASSERT_GE(value_of<C>(up + 1, scale), x) << high << ' ' << octaves;
          ASSERT_FALSE(is_nan_code<C>(up + 2)) << high << ' ' << octaves;
        }
      }
    }
  }
}

/// A group's steps are as fine as its octaves allow: of values between 1 and 1.5, 2^-7 of the value in 8 bits.
TEST(StateCodes, AGroupOfLikeSquaresHasFineSteps) {
  const auto step_beside = [](auto code, float smallest) {
    using C = decltype(code);
    const uint32_t scale = scale_of<C>({1.5F, smallest}), one = C::encode(1.0F, scale, kToNearest);
    return value_of<C>(one + 1, scale) - value_of<C>(one, scale);
  };
  EXPECT_EQ(step_beside(SquareLog8{}, 1.0F), 0x1p-7);
  EXPECT_EQ(step_beside(SquareLog8{}, 0x1p-1F), 0x1p-6);
  EXPECT_EQ(step_beside(SquareLog8{}, 0x1p-6F), 0x1p-5);
  EXPECT_EQ(step_beside(SquareLog8{}, 0x1p-14F), 0x1p-4);
  EXPECT_EQ(step_beside(SquareLog8{}, 0x1p-28F), 0x1p-3);
  EXPECT_EQ(step_beside(SquareLog8{}, 0x1p-100F), 0x1p-3);  // beyond the widest range
  EXPECT_EQ(step_beside(SquareLog8{}, 0.0F), 0x1p-7);       // code 0 is outside the range
  EXPECT_EQ(step_beside(SquareE6m10{}, 1.0F), 0x1p-10);
  EXPECT_EQ(step_beside(SquareE6m10{}, 0x1p-60F), 0x1p-10);
}

TEST(StateCodes, WhatKeepsNothingOfItsOldValueIsRoundedToNearest) {
  EXPECT_FALSE(rounds_stochastically(1.0F));  // a maximum
  EXPECT_TRUE(rounds_stochastically(0.9F));
  EXPECT_TRUE(rounds_stochastically(0.0F));  // a sum
  EXPECT_FALSE(is_slow(float(1.0 - 0.99)));
  EXPECT_TRUE(is_slow(float(1.0 - 0.991)));
}

TEST(Philox, HasTheKnownAnswersOfRandom123) {
  const auto expect = [](uint64_t seed, int64_t block, uint32_t step, uint32_t draw, std::vector<uint32_t> words) {
    const Philox x = philox(seed, block, step, static_cast<Draw>(draw));
    for (size_t w = 0; w < 4; ++w) EXPECT_EQ(x.word[w], words[w]) << w;
  };
  expect(0, 0, 0, 0, {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48});
  expect(~0ULL, ~0ULL, ~0U, ~0U, {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662});
  expect(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x13198a2e, 0x03707344,
         {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a});
}

/// Every code of FlashOptim with every scale; it does not use 0x80.
TEST(FlashCodes, AreEncodedAsTheyWereDecoded) {
  for (uint32_t scale = 1; scale < 0x7c00U; ++scale) {
    for (uint32_t code = 0; code < 256; ++code) {
      const bool is_used = code != 0x80U;
      ASSERT_TRUE(!is_used || FlashMoment::encode(FlashMoment::decode(code, scale), scale) == code)
          << code << ' ' << scale;
      ASSERT_EQ(FlashSquare::encode(FlashSquare::decode(code, scale), scale), code) << scale;
    }
    ASSERT_EQ(FlashMoment::scale_for(to_bits(FlashMoment::decode(0x7f, scale))), scale);
    ASSERT_EQ(FlashSquare::scale_for(to_bits(FlashSquare::decode(0xff, scale))), scale);
  }
}

}  // namespace
}  // namespace gsc
