// SPDX-License-Identifier: Apache-2.0
//
// The NCCL adapter with the test's ncclAllReduce, which notes its arguments: one call a check, of two
// doubles in place, on the communicator and stream given, and its failure reaches the caller.
#include <gradscaler/adapters/nccl.h>

#include "tests/support/objects.h"

extern "C" gsc_reducer adapters_nccl_in_c(ncclComm_t comm);

namespace {
struct Call {
  const void *from;
  void *to;
  size_t count;
  ncclDataType_t dtype;
  ncclRedOp_t op;
  ncclComm_t comm;
  cudaStream_t stream;
};
std::vector<Call> g_calls;
ncclResult_t g_result = ncclSuccess;
}  // namespace

extern "C" ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                                      ncclComm_t comm, cudaStream_t stream) {
  g_calls.push_back({from, to, count, dtype, op, comm, stream});
  return g_result;
}

namespace gsc_test {
namespace {

TEST(Nccl, OneAllReduceOfTwoDoublesInPlace) {
  int place = 0;
  auto *const comm = reinterpret_cast<ncclComm_t>(&place);
  const Context context = make_context();
  Buffer buffer(GSC_FP32, 4);
  const List list = make_list(context, buffer);
  int stream = 0;
  for (const auto &make : {gsc_nccl_reducer, adapters_nccl_in_c}) {
    g_calls.clear();
    g_result = ncclSuccess;
    const Scaler scaler = make_scaler(context, 2.0f);
    const gsc_reducer reducer = make(comm);
    ASSERT_GSC_OK(gsc_scaler_set_reducer(scaler, &reducer));
    ASSERT_GSC_OK(gsc_scaler_check(scaler, list, &stream));
    ASSERT_EQ(g_calls.size(), 1u);
    const Call &call = g_calls[0];
    EXPECT_EQ(call.from, call.to);
    EXPECT_EQ(call.count, 2u);
    EXPECT_EQ(call.dtype, ncclFloat64);
    EXPECT_EQ(call.op, ncclSum);
    EXPECT_EQ(call.comm, comm);
    EXPECT_EQ(static_cast<void *>(call.stream), &stream);
    ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
    g_result = ncclInternalError;
    EXPECT_GSC_ERROR(gsc_scaler_check(scaler, list, &stream), GSC_ERROR_CALLBACK, "all_reduce");
  }
}

}  // namespace
}  // namespace gsc_test
