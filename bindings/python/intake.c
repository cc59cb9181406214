/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers and DLPack capsules as tuples of plain numbers; see intake.h. The DLPack structs are declared here with the
 * layout that its specification fixes, so that nothing has to be installed.
 */
#define PY_SSIZE_T_CLEAN
#include "intake.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct DlTensor {
  void *data;
  int32_t device_type;
  int32_t device_index;
  int32_t ndim;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} DlTensor;

typedef struct DlManaged {
  DlTensor tensor;
  void *context;
  void (*deleter)(struct DlManaged *self);
} DlManaged;

typedef struct DlManagedVersioned {
  uint32_t major;
  uint32_t minor;
  void *context;
  void (*deleter)(struct DlManagedVersioned *self);
  uint64_t flags;
  DlTensor tensor;
} DlManagedVersioned;

enum { kDlReadOnly = 1 };

static const char kBufferHolder[] = "gradscaler.buffer";
static const char kDlHolder[] = "gradscaler.dlpack";
static const char kDlVersionedHolder[] = "gradscaler.dlpack_versioned";

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
  PyObject *holder = PyCapsule_New(view, kBufferHolder, release_buffer);
  if (!holder) {
    PyBuffer_Release(view);
    free(view);
    return NULL;
  }
  return Py_BuildValue("(NNnnsii)", holder, PyLong_FromVoidPtr(view->buf), view->len, view->itemsize,
                       view->format ? view->format : "B", view->readonly, PyBuffer_IsContiguous(view, 'C'));
}

/* Destructors may run while an exception is on its way, and a producer's deleter may call into Python. */
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

static int is_contiguous(const DlTensor *tensor) {
  int64_t expected = 1;
  if (!tensor->strides) return 1;
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    if (tensor->shape[i] == 0) return 1;
  }
  for (int32_t i = tensor->ndim - 1; i >= 0; --i) {
    if (tensor->shape[i] != 1 && tensor->strides[i] != expected) return 0;
    expected *= tensor->shape[i];
  }
  return 1;
}

static PyObject *describe(PyObject *holder, const DlTensor *tensor, int readonly) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor->ndim; ++i) count *= tensor->shape[i];
  void *data = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
  return Py_BuildValue("(NNLiiiiiii)", holder, PyLong_FromVoidPtr(data), (long long)count, (int)tensor->code,
                       (int)tensor->bits, (int)tensor->lanes, (int)tensor->device_type, (int)tensor->device_index,
                       readonly, is_contiguous(tensor));
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
