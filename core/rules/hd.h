// SPDX-License-Identifier: Apache-2.0
// GSC_HD marks functions that are compiled for the host and for CUDA devices from one source, so that both backends
// follow the same rule to the bit. Such functions use IEEE arithmetic in one written order, fused only by multiply_add:
// the host build has -ffp-contract=off, the device build --fmad=false.
#pragma once

#if defined(__CUDACC__)
#define GSC_HD __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define GSC_HD inline __attribute__((always_inline))
#else
#define GSC_HD inline
#endif

/// After the parameters of a lambda in a function that the kernels of several instruction sets inline: without it the
/// compiler may make one function of it, which the linker then shares among them.
#if defined(__GNUC__) && !defined(__CUDACC__)
#define GSC_INLINED __attribute__((always_inline))
#else
#define GSC_INLINED
#endif

/// Before a template for host and device whose argument may be a function of only one of them.
#if defined(__CUDACC__)
#define GSC_ANY_SPACE _Pragma("nv_exec_check_disable")
#else
#define GSC_ANY_SPACE
#endif
