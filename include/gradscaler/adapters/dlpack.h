/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRADSCALER_ADAPTERS_DLPACK_H
#define GRADSCALER_ADAPTERS_DLPACK_H
/*
 * A gsc_tensor from a DLPack tensor, as frameworks export them. Nothing is copied and nothing is owned: the
 * DLManagedTensor must outlive the last list that refers to its memory. Needs DLPack 0.5 or later.
 *
 *     gsc_tensor t;
 *     if (gsc_dlpack_tensor(&managed->dl_tensor, &t) == GSC_OK) ...
 *
 * These functions do not set gsc_error_get_message(); each comment explains the statuses.
 */
#include <dlpack/dlpack.h>
#include <gradscaler/gradscaler.h>

/** The dtype's GSC_* code, 0 if there is none. */
static inline int32_t gsc_dlpack_dtype(DLDataType dtype) {
  if (dtype.lanes != 1) return 0;
  if (dtype.code == (uint8_t)kDLBfloat) return dtype.bits == 16 ? GSC_BF16 : 0;
  if (dtype.code != (uint8_t)kDLFloat) return 0;
  return dtype.bits == 16 ? GSC_FP16 : dtype.bits == 32 ? GSC_FP32 : dtype.bits == 64 ? GSC_FP64 : 0;
}

/**
 * Describes `dl` as a flat buffer. INVALID_ARGUMENT: a pointer is NULL, a size is negative, or there are more than
 * INT64_MAX elements. UNSUPPORTED: a dtype other than fp16, bf16, fp32 and fp64, or elements that are not contiguous in
 * row-major order.
 */
static inline gsc_status gsc_dlpack_tensor(const DLTensor *dl, gsc_tensor *out_tensor) {
  int64_t count = 1;
  int32_t i;
  if (dl == NULL || out_tensor == NULL || dl->ndim < 0 || (dl->ndim > 0 && dl->shape == NULL)) {
    return GSC_ERROR_INVALID_ARGUMENT;
  }
  if (gsc_dlpack_dtype(dl->dtype) == 0) return GSC_ERROR_UNSUPPORTED;
  for (i = 0; i < dl->ndim; ++i) {
    if (dl->shape[i] < 0) return GSC_ERROR_INVALID_ARGUMENT;
    if (dl->shape[i] == 0) count = 0;
  }
  for (i = dl->ndim; count != 0 && i-- > 0;) {
    /* The stride of a dimension of one element means nothing. */
    if (dl->strides != NULL && dl->shape[i] != 1 && dl->strides[i] != count) return GSC_ERROR_UNSUPPORTED;
    if (dl->shape[i] > INT64_MAX / count) return GSC_ERROR_INVALID_ARGUMENT;
    count *= dl->shape[i];
  }
  if (dl->data == NULL && count != 0) return GSC_ERROR_INVALID_ARGUMENT;
  {
    const gsc_tensor tensor = GSC_TENSOR_INIT(dl->data == NULL ? NULL : (char *)dl->data + dl->byte_offset, count,
                                              gsc_dlpack_dtype(dl->dtype));
    *out_tensor = tensor;
  }
  return GSC_OK;
}

/**
 * The device, in the terms of gsc_context_options. Pinned host memory is the CPU's, managed memory the CUDA device's.
 * UNSUPPORTED: another kind of device.
 */
static inline gsc_status gsc_dlpack_device(DLDevice device, int32_t *out_type, int32_t *out_index) {
  switch ((int)device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      *out_type = GSC_DEVICE_CPU;
      *out_index = 0;
      return GSC_OK;
    case kDLCUDA:
    case 13: /* kDLCUDAManaged, since DLPack 0.6 */
      *out_type = GSC_DEVICE_CUDA;
      *out_index = (int32_t)device.device_id;
      return GSC_OK;
    default:
      return GSC_ERROR_UNSUPPORTED;
  }
}

#if defined(DLPACK_MAJOR_VERSION) && DLPACK_MAJOR_VERSION >= 1
/**
 * As gsc_dlpack_tensor, for tensors that will be written: UNSUPPORTED also if the tensor is read-only, or a copy, whose
 * changes the producer would not see.
 */
static inline gsc_status gsc_dlpack_writable_tensor(const DLManagedTensorVersioned *dl, gsc_tensor *out_tensor) {
  if (dl == NULL) return GSC_ERROR_INVALID_ARGUMENT;
  /* 2 is DLPACK_FLAG_BITMASK_IS_COPIED, which the first header of DLPack 1 lacks. */
  if ((dl->flags & (DLPACK_FLAG_BITMASK_READ_ONLY | 2U)) != 0) return GSC_ERROR_UNSUPPORTED;
  return gsc_dlpack_tensor(&dl->dl_tensor, out_tensor);
}
#endif

#endif /* GRADSCALER_ADAPTERS_DLPACK_H */
