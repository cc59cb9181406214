/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers and DLPack capsules as tuples of plain numbers, and who else holds a buffer; see intake.h. tensors.c has the
 * rest.
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

/* References to an object, through the interpreter: where the count lies in it depends on the version. `own` is what
 * one that is held once has. */
typedef struct Counter {
  PyObject *getrefcount;
  long own;
} Counter;

static long count_of(const Counter *counter, PyObject *object) {
  PyObject *number = PyObject_CallFunctionObjArgs(counter->getrefcount, object, NULL);
  const long count = number ? PyLong_AsLong(number) : -1;
  Py_XDECREF(number);
  return count < 0 ? -1 : count - counter->own + 1;
}

static int open_counter(Counter *counter) {
  counter->own = 1;
  counter->getrefcount = PySys_GetObject("getrefcount");
  PyObject *held_once = counter->getrefcount ? PyList_New(0) : NULL;
  if (!held_once) return 0;
  Py_INCREF(counter->getrefcount);
  counter->own = count_of(counter, held_once);
  Py_DECREF(held_once);
  return counter->own > 0;
}

/* An attribute, and of that another if `inner` is not NULL; 1 if it is true, 0 if false, -1 with an exception. */
static int is_true(PyObject *object, const char *name, const char *inner) {
  PyObject *value = PyObject_GetAttrString(object, name);
  if (value && inner) {
    PyObject *outer = value;
    value = PyObject_GetAttrString(outer, inner);
    Py_DECREF(outer);
  }
  const int found = value ? PyObject_IsTrue(value) : -1;
  Py_XDECREF(value);
  return found;
}

/* Finds the object that has the memory of a buffer of `at`, and the references to it. 1 if nothing else holds what lies
 * between them; 0 if something does, or if it may be written without a reference to it; -1 with an exception. */
static int sole_root(const Counter *counter, PyObject *at, PyObject *array, PyObject *owners, void **root,
                     long *references) {
  Py_INCREF(at);
  int sole = 1;
  /* Views of NumPy hold the array that they are of, all others something that is not known here. */
  while (sole == 1 && (PyObject *)Py_TYPE(at) == array) {
    PyObject *base = PyObject_GetAttrString(at, "base");
    if (!base || base == Py_None) {
      sole = base ? is_true(at, "flags", "owndata") : -1;
      Py_XDECREF(base);
      break;
    }
    const long count = count_of(counter, at);
    sole = count < 0 ? -1 : count == 2;
    Py_DECREF(at);
    at = base;
  }
  if (sole == 1 && (PyObject *)Py_TYPE(at) != array) sole = PySequence_Contains(owners, (PyObject *)Py_TYPE(at));
  if (sole == 1) {
    *references = count_of(counter, at) - 1;
    *root = at;
    sole = *references < 0 ? -1 : 1;
  }
  Py_DECREF(at);
  return sole;
}

/* Whether there are `expected` references; -1 with an exception. */
static int has_references(const Counter *counter, PyObject *object, long expected) {
  const long count = count_of(counter, object);
  return count < 0 ? -1 : count == expected;
}

/* Appends (index, root, references) of one tensor; -1 with an exception. */
static int append_sole(const Counter *counter, PyObject *tensors, Py_ssize_t index, PyObject *owner, PyObject *array,
                       PyObject *owners, PyObject *found) {
  PyObject *tensor = PyList_GetItem(tensors, index);
  PyObject *holder = tensor ? PyObject_GetAttr(tensor, owner) : NULL;
  if (!holder) return -1;
  const Py_buffer *view =
      PyCapsule_IsValid(holder, kBufferHolder) ? (Py_buffer *)PyCapsule_GetPointer(holder, kBufferHolder) : NULL;
  void *root = NULL;
  long references = 0;
  /* Nearly always the caller holds the array itself: that is asked first. */
  int sole = view && view->obj ? has_references(counter, view->obj, 1) : 0;
  if (sole == 1) sole = has_references(counter, holder, 2);
  if (sole == 1) sole = has_references(counter, tensor, 1);
  if (sole == 1) sole = sole_root(counter, view->obj, array, owners, &root, &references);
  Py_DECREF(holder);
  if (sole != 1) return sole;
  PyObject *entry = Py_BuildValue("(nNl)", index, PyLong_FromVoidPtr(root), references);
  const int appended = entry ? PyList_Append(found, entry) : -1;
  Py_XDECREF(entry);
  return appended;
}

PyObject *gsc_buffer_holders(PyObject *tensors, PyObject *array, PyObject *owners) {
  Counter counter = {NULL, 1};
  PyObject *owner = PyUnicode_InternFromString("owner");
  PyObject *found = owner && open_counter(&counter) ? PyList_New(0) : NULL;
  for (Py_ssize_t i = 0; found && i < PyList_Size(tensors); ++i) {
    if (append_sole(&counter, tensors, i, owner, array, owners, found) < 0) {
      Py_DECREF(found);
      found = NULL;
    }
  }
  Py_XDECREF(counter.getrefcount);
  Py_XDECREF(owner);
  return found;
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
    if (managed->flags & kDlIsCopied) {
      PyErr_SetString(PyExc_BufferError, "what it gives out is a copy of itself");
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
