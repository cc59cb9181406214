/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of NCCL's interface that the adapter uses, for machines without NCCL: names, types and values as in NCCL 2.
 * The test brings ncclAllReduce itself, also where the real header is found. Not part of the library.
 */
#ifndef GRADSCALER_TESTS_ADAPTERS_STUB_NCCL_H
#define GRADSCALER_TESTS_ADAPTERS_STUB_NCCL_H
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
typedef struct CUstream_st *cudaStream_t;
typedef struct ncclComm *ncclComm_t;
typedef enum { ncclSuccess = 0, ncclInternalError = 3 } ncclResult_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;
typedef enum { ncclFloat64 = 8 } ncclDataType_t;
ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
