/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks into arrays of other Python libraries without copying: by the buffer protocol and by DLPack. Both functions
 * return a tuple whose first item holds the memory: as long as it lives the array cannot be freed or resized by its
 * owner. Judging what was found (dtype, device, contiguity) is left to arrays.py.
 */
#ifndef GRADSCALER_PYTHON_INTAKE_H
#define GRADSCALER_PYTHON_INTAKE_H
#include <Python.h>

/* (holder, address, bytes, itemsize, format, readonly, contiguous); NULL and an exception if there is no buffer. */
PyObject *gsc_buffer_view(PyObject *object);

/*
 * Takes over a capsule from __dlpack__, versioned or not:
 * (holder, address, count, code, bits, lanes, device_type, device_index, readonly, contiguous).
 */
PyObject *gsc_dlpack_view(PyObject *capsule);

#endif /* GRADSCALER_PYTHON_INTAKE_H */
