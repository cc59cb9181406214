/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks into arrays of other Python libraries without copying: by the buffer protocol and by DLPack. Both functions
 * return a tuple whose first item holds the memory: as long as it lives the array cannot be freed or resized by its
 * owner. Judging what was found (dtype, device, order) is left to look.py.
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
 * Takes over a capsule from __dlpack__, versioned or not:
 * (holder, address, code, bits, lanes, device_type, device_index, readonly, shape, strides in elements, has_strides).
 * Without strides the array is contiguous in C order.
 */
PyObject *gsc_dlpack_view(PyObject *capsule);

#endif /* GRADSCALER_PYTHON_INTAKE_H */
