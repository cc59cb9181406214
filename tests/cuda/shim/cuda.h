// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for the part of the CUDA driver API that core/cuda uses, for the emulation only: names, types and values
// are the original's, behaviour is in fake_driver.cpp. Not part of the library.
#ifndef GRADSCALER_TESTS_CUDA_SHIM_CUDA_H
#define GRADSCALER_TESTS_CUDA_SHIM_CUDA_H
#include "cuda_runtime_api.h"

enum CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_UNKNOWN = 999
};
enum CUpointer_attribute {
  CU_POINTER_ATTRIBUTE_CONTEXT = 1,
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
  CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9
};
enum CUmemorytype { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };
struct CUctx_st;
using CUcontext = CUctx_st *;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUstream = cudaStream_t;
#endif
