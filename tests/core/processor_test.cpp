// SPDX-License-Identifier: Apache-2.0
//
// The choice of the instruction set on processors that this machine is not: each that lacks one feature.
#include "core/cpu/processor.h"

#include <gtest/gtest.h>

namespace gsc::cpu {
namespace {

constexpr unsigned kAll = 0xffffffff;

/// `bits` taken away one by one give `target`, and all together too.
template <typename F>
void expect_without(std::initializer_list<int> bits, int32_t target, const F &take) {
  unsigned together = kAll;
  for (const int bit : bits) {
    EXPECT_EQ(target_of(take(kAll & ~(1U << bit))), target) << "without bit " << bit;
    together &= ~(1U << bit);
  }
  EXPECT_EQ(target_of(take(together)), target);
  // No other bit counts.
  EXPECT_EQ(target_of(take(~together)), GSC_CPU_AVX512);
}

TEST(Processor, EachMissingFeatureTakesAnInstructionSet) {
  EXPECT_EQ(target_of({kAll, kAll, kAll}), GSC_CPU_AVX512);
  EXPECT_EQ(target_of({}), GSC_CPU_BASELINE);
  // FMA, OSXSAVE, AVX, F16C
  expect_without({12, 27, 28, 29}, GSC_CPU_BASELINE, [](unsigned bits) { return X86Features{bits, kAll, kAll}; });
  // AVX512F, DQ, CD, BW, VL. With AVX2, without which there is none of them.
  expect_without({16, 17, 28, 30, 31}, GSC_CPU_AVX2, [](unsigned bits) {
    return X86Features{kAll, bits | 1U << 5, kAll};
  });
  EXPECT_EQ(target_of({kAll, kAll & ~(1U << 5), kAll}), GSC_CPU_BASELINE);
  // The states of ZMM. With XMM and YMM.
  expect_without({5, 6, 7}, GSC_CPU_AVX2, [](unsigned bits) { return X86Features{kAll, kAll, bits | 0x6}; });
  for (const unsigned saved : {0xe0U, 0xe2U, 0xe4U}) EXPECT_EQ(target_of({kAll, kAll, saved}), GSC_CPU_BASELINE);
}

}  // namespace
}  // namespace gsc::cpu
