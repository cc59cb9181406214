// SPDX-License-Identifier: Apache-2.0
//
// Random calls against the model of the stages (tests/support/stage_world.h), with the lists of one context and of two.
// fuzz/calls_fuzz.cpp drives the same by a fuzzer.
#include "tests/support/stage_world.h"

namespace gsc_test {
namespace {

TEST(RandomCalls, KeepTheTableOfStages) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    StageWorld<Random> world{Random(seed)};
    for (int i = 0; i < 400; ++i) {
      SCOPED_TRACE(text("seed ", seed, ", call ", i));
      world.call();
      if (::testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace gsc_test
