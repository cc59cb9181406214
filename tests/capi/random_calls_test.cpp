// SPDX-License-Identifier: Apache-2.0
//
// Random calls (tests/support/random_calls.h), with the lists of one context and of two. fuzz/calls_fuzz.cpp drives the
// same by a fuzzer.
#include "tests/support/random_calls.h"

namespace gsc_test {
namespace {

TEST(RandomCalls, WorkOrChangeNothing) {
  constexpr int kCalls = 400;
  drive(40, kCalls, [](uint64_t seed) {
    RandomCalls<Random> world{Random(seed)};
    for (int i = 0; i < kCalls && !HasFailure(); ++i) {
      SCOPED_TRACE(text("call ", i));
      world.call();
    }
  });
}

}  // namespace
}  // namespace gsc_test
