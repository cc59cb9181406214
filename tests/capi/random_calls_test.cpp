// SPDX-License-Identifier: Apache-2.0
//
// Random calls against the model of the stages (tests/support/stage_world.h), with the lists of one context and of two.
// fuzz/calls_fuzz.cpp drives the same by a fuzzer.
#include "tests/support/stage_world.h"

namespace gsc_test {
namespace {

TEST(RandomCalls, KeepTheTableOfStages) {
  constexpr int kCalls = 400;
  drive(40, kCalls, [](uint64_t seed) {
    StageWorld<Random> world{Random(seed)};
    for (int i = 0; i < kCalls && !HasFailure(); ++i) {
      SCOPED_TRACE(text("call ", i));
      world.call();
    }
  });
}

}  // namespace
}  // namespace gsc_test
