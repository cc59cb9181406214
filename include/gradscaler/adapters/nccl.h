/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRADSCALER_ADAPTERS_NCCL_H
#define GRADSCALER_ADAPTERS_NCCL_H
/*
 * A gsc_reducer over an NCCL communicator: one all-reduce of two doubles for each list checked, enqueued on the stream
 * of the call. The library itself does not depend on NCCL; a program that includes this header needs nccl.h and links
 * NCCL.
 *
 *     gsc_reducer reducer = gsc_nccl_reducer(comm);
 *     gsc_scaler_set_reducer(scaler, &reducer);
 */
#include <gradscaler/gradscaler.h>
#include <nccl.h>

/** A gsc_all_reduce_fn; user is the ncclComm_t. Not 0: NCCL's result. */
static inline int32_t gsc_nccl_all_reduce(void *user, double *values, int64_t count, gsc_stream stream) {
  return (int32_t)ncclAllReduce(values, values, (size_t)count, ncclFloat64, ncclSum, (ncclComm_t)user,
                                (cudaStream_t)stream);
}

/**
 * The reducer over `comm`, whose device is that of the scaler and its lists. The communicator stays the caller's and
 * must outlive the scaler or the next gsc_scaler_set_reducer.
 */
static inline gsc_reducer gsc_nccl_reducer(ncclComm_t comm) {
  gsc_reducer reducer;
  reducer.struct_size = (uint32_t)sizeof reducer;
  reducer.flags = 0;
  reducer.all_reduce = gsc_nccl_all_reduce;
  reducer.user = (void *)comm;
  return reducer;
}

#endif /* GRADSCALER_ADAPTERS_NCCL_H */
