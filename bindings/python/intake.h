/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads arrays of other Python libraries without copying, through the buffer protocol and DLPack. gsc_buffer_view
 * and gsc_dlpack_view return a tuple whose first item holds the memory: while it lives, the owner cannot free or resize
 * the array. array_protocols.py validates the result (dtype, device, order).
 */
#ifndef GRADSCALER_PYTHON_INTAKE_H
#define GRADSCALER_PYTHON_INTAKE_H
#include <Python.h>

/*
 * (holder, address, bytes, itemsize, format, readonly, shape, strides in bytes); NULL and an exception if there is no
 * buffer.
 */
PyObject *gsc_buffer_view(PyObject *object);

/*
 * Who else holds the memory of a list of Tensor: [(index, id of the object that has the memory, references to it)], of
 * those made by gsc_buffer_view of which only the list holds anything before that object. `array` is numpy.ndarray,
 * whose views are followed, or None; `owners` are the other types, whose memory is written only by who holds them.
 */
PyObject *gsc_buffer_holders(PyObject *tensors, PyObject *array, PyObject *owners);

/*
 * Consumes a capsule from __dlpack__, versioned or not: (holder, address, code, bits, lanes, device_type, device_index,
 * readonly, shape, strides in elements, has_strides). Without strides the array is contiguous in C order.
 */
PyObject *gsc_dlpack_view(PyObject *capsule);

/*
 * Many tensors at once, by the C functions of DLPack 1.2. `api` is a capsule of these functions, such as
 * torch.Tensor.__dlpack_c_exchange_api__, `tensors` a list of tensors and None. Returns (layout, addresses, present) as
 * bytes: `layout` is equal for two lists if and only if dtypes, devices, shapes, strides and the places of None are; the
 * address of each tensor, NULL for None; and a byte for each, 0 for None. Returns None if the type of an entry is not
 * one of the tuple `types`, if `is_neg`, a callable or None, does not return False for it, if DLPack cannot describe it,
 * or if the capsule's version is unknown. The caller holds `tensors`, and nothing else changes it meanwhile.
 */
PyObject *gsc_tensors_view(PyObject *api, PyObject *tensors, PyObject *types, PyObject *is_neg);

/*
 * Whether parameters are as they were, and where their gradients are, for an optimizer that asks this in every step.
 * `known` is (types, is_neg, params, layout, addresses, layout of the gradients), of gsc_tensors_view. Returns
 * (gradients, addresses, present), or None if `params` are others or elsewhere, or if a gradient that is there has
 * another layout. `grads` is a list, or None for the attribute `grad` of each. `tell`, if not None, is called with lists
 * of the parameters that have a gradient while their memory is in the caches, although later ones may turn out to be
 * others.
 */
PyObject *gsc_step_view(PyObject *api, PyObject *params, PyObject *grads, PyObject *known, PyObject *tell);

/* One tensor of a layout. */
typedef struct LayoutEntry {
  int64_t elements;
  int32_t dtype; /* GSC_*; -1 if the library has none */
  int32_t bits;  /* of an element */
  int32_t rank;
  const int64_t *words; /* device, rank, extents and strides */
} LayoutEntry;

/* Reads the next tensor of a layout; `rest` is the words that are left, and is moved on. 0 at the end, and for a tensor
 * that has gaps or repeats elements. */
int gsc_layout_next(const int64_t **rest, int64_t *rest_count, LayoutEntry *out);

#endif /* GRADSCALER_PYTHON_INTAKE_H */
