// SPDX-License-Identifier: Apache-2.0
//
// A tensor of more than 2^31 elements: checked over untouched zero pages of the system, so that it costs address space
// rather than memory. Labelled `large`; skipped under sanitizers, where reading 4 GiB takes too long.
#include <sys/mman.h>

#include "tests/support/objects.h"
#include "tests/support/repetition.h"

namespace gsc_test {
namespace {

TEST(CheckLarge, MoreThanTwoToThe31Elements) {
  if (kSanitized) GTEST_SKIP() << "4 GiB are too slow under a sanitizer";
  const int64_t count = (int64_t{1} << 31) + 100000;
  const size_t bytes = count * 2;
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space for 4 GiB";
  madvise(memory, bytes, MADV_HUGEPAGE);
  const Context context = make_context(0);
  const List list = make_list(context, {GSC_TENSOR_INIT(memory, count, GSC_FP16)});
  const Scaler scaler = make_scaler(context, 2.0f);
  const int64_t at = (int64_t{1} << 31) + 54321;
  uint16_t *const data = static_cast<uint16_t *>(memory);
  data[at] = encode(-kInf, GSC_FP16);
  data[7] = encode(3.0, GSC_FP16);
  data[count - 1] = encode(4.0, GSC_FP16);
  ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
  const gsc_report report = report_of(scaler, list);
  EXPECT_EQ(report.inf_count, 1);
  EXPECT_EQ(report.first_element, at);
  EXPECT_EQ(report.grad_amax, 2.0);
  data[at] = 0;
  ASSERT_GSC_OK(gsc_scaler_discard(scaler, nullptr));
  ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
  EXPECT_DOUBLE_EQ(report_of(scaler, list).grad_norm, 2.5);
  munmap(memory, bytes);
}

}  // namespace
}  // namespace gsc_test
