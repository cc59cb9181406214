/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers and DLPack capsules as tuples of plain numbers; see intake.h.
 */
#define PY_SSIZE_T_CLEAN
#include "intake.h"

#include <stdlib.h>
#include <string.h>

#include "dlpack.h"

static const char kBufferHolder[] = "gradscaler.buffer";
static const char kDlHolder[] = "gradscaler.dlpack";
static const char kDlVersionedHolder[] = "gradscaler.dlpack_versioned";

/* A tuple of numbers, empty for NULL; NULL if allocation failed, which Py_BuildValue passes on. */
static PyObject *extents(const int64_t *values, int count) {
  PyObject *tuple = PyTuple_New(values ? count : 0);
  for (int i = 0; tuple && values && i < count; ++i) {
    PyObject *value = PyLong_FromLongLong(values[i]);
    if (!value) {
      Py_DECREF(tuple);
      return NULL;
    }
    PyTuple_SetItem(tuple, i, value);
  }
  return tuple;
}

static PyObject *sizes(const Py_ssize_t *values, int count) {
  int64_t wide[PyBUF_MAX_NDIM];
  for (int i = 0; values && i < count; ++i) wide[i] = values[i];
  return extents(values ? wide : NULL, count);
}

static void release_buffer(PyObject *holder) {
  Py_buffer *view = (Py_buffer *)PyCapsule_GetPointer(holder, kBufferHolder);
  if (!view) return;
  PyBuffer_Release(view);
  free(view);
}

PyObject *gsc_buffer_view(PyObject *object) {
  Py_buffer *view = (Py_buffer *)calloc(1, sizeof *view);
  if (!view) return PyErr_NoMemory();
  if (PyObject_GetBuffer(object, view, PyBUF_FULL_RO) < 0) {
    free(view);
    return NULL;
  }
  /* Not every exporter respects the limit: ctypes nests arrays to any depth. */
  if (view->suboffsets || view->ndim > PyBUF_MAX_NDIM) {
    PyErr_SetString(PyExc_BufferError, view->suboffsets ? "the buffer has indirect rows" : "too many dimensions");
    PyBuffer_Release(view);
    free(view);
    return NULL;
  }
  PyObject *holder = PyCapsule_New(view, kBufferHolder, release_buffer);
  if (!holder) {
    PyBuffer_Release(view);
    free(view);
    return NULL;
  }
  return Py_BuildValue("(NNnnsiNN)", holder, PyLong_FromVoidPtr(view->buf), view->len, view->itemsize,
                       view->format ? view->format : "B", view->readonly, sizes(view->shape, view->ndim),
                       sizes(view->strides, view->ndim));
}

/* Destructors may run while an exception is set, and a producer's deleter may call into Python. */
static void release_dlpack(PyObject *holder) {
  DlManaged *managed = (DlManaged *)PyCapsule_GetPointer(holder, kDlHolder);
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (managed && managed->deleter) managed->deleter(managed);
  PyErr_Restore(type, value, traceback);
}

static void release_dlpack_versioned(PyObject *holder) {
  DlManagedVersioned *managed = (DlManagedVersioned *)PyCapsule_GetPointer(holder, kDlVersionedHolder);
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (managed && managed->deleter) managed->deleter(managed);
  PyErr_Restore(type, value, traceback);
}

static PyObject *describe(PyObject *holder, const DlTensor *tensor, int readonly) {
  if (tensor->ndim < 0 || (tensor->ndim > 0 && !tensor->shape)) {
    PyErr_Format(PyExc_BufferError, "the array has %d dimensions, but no shape", (int)tensor->ndim);
    Py_DECREF(holder);
    return NULL;
  }
  void *data = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
  return Py_BuildValue("(NNiiiiiiNNi)", holder, PyLong_FromVoidPtr(data), (int)tensor->code, (int)tensor->bits,
                       (int)tensor->lanes, (int)tensor->device_type, (int)tensor->device_index, readonly,
                       extents(tensor->shape, tensor->ndim), extents(tensor->strides, tensor->ndim),
                       tensor->strides != NULL);
}

PyObject *gsc_dlpack_view(PyObject *capsule) {
  PyObject *holder;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    DlManagedVersioned *managed = (DlManagedVersioned *)PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed->major > 1) {
      PyErr_Format(PyExc_BufferError, "the array speaks DLPack %u, which this version does not know", managed->major);
      return NULL;
    }
    holder = PyCapsule_New(managed, kDlVersionedHolder, release_dlpack_versioned);
    if (!holder) return NULL;
    PyCapsule_SetName(capsule, "used_dltensor_versioned");
    return describe(holder, &managed->tensor, (managed->flags & kDlReadOnly) != 0);
  }
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    DlManaged *managed = (DlManaged *)PyCapsule_GetPointer(capsule, "dltensor");
    holder = PyCapsule_New(managed, kDlHolder, release_dlpack);
    if (!holder) return NULL;
    PyCapsule_SetName(capsule, "used_dltensor");
    return describe(holder, &managed->tensor, 0);
  }
  PyErr_SetString(PyExc_TypeError, "not a DLPack capsule that can still be used");
  return NULL;
}
