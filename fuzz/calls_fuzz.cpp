// SPDX-License-Identifier: Apache-2.0
// Bytes as a sequence of calls on a scaler, two lists and two optimizers, of one context or of two: what must hold by
// tests/support/random_calls.h and does not ends the run as a crash would.
#include "fuzz/bytes.h"
#include "tests/support/random_calls.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  GTEST_FLAG_SET(break_on_failure, true);
  if (size > 4096) return 0;
  gsc_test::RandomCalls<gsc_fuzz::Bytes> world(gsc_fuzz::Bytes(data, size));
  while (!world.choices().empty()) world.call();
  return 0;
}
