/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers and DLPack capsules as tuples of plain numbers, who else holds a buffer, and many tensors at once; see
 * intake.h.
 */
#define PY_SSIZE_T_CLEAN
#include "intake.h"

#include <stdlib.h>
#include <string.h>

#include "dlpack.h"
#include "gradscaler/gradscaler.h"

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
 * between them; 0 if somebody does, or if it may be written without a reference to it; -1 with an exception. */
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
  /* Nearly always somebody else holds the array itself: that is asked first. */
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

typedef struct Words {
  int64_t *items;
  size_t count;
  size_t capacity;
} Words;

/* Makes room for `more` words; 0 if allocation failed. */
static int reserve(Words *words, size_t more) {
  if (words->count + more <= words->capacity) return 1;
  const size_t capacity = 2 * (words->count + more);
  int64_t *items = (int64_t *)realloc(words->items, capacity * sizeof *items);
  if (!items) return 0;
  words->items = items;
  words->capacity = capacity;
  return 1;
}

static const DlExchange *exchange_of(PyObject *api) {
  const DlExchange *found = (const DlExchange *)PyCapsule_GetPointer(api, "dlpack_exchange_api");
  if (!found) PyErr_Clear();
  while (found && found->major != 1) found = found->older;
  return found && found->view ? found : NULL;
}

/* DLPack does not tell that a view is negated. In doubt it is. */
static int is_negated(PyObject *is_neg, PyObject *tensor) {
  PyObject *answer = PyObject_CallFunctionObjArgs(is_neg, tensor, NULL);
  const int negated = answer != Py_False;
  Py_XDECREF(answer);
  PyErr_Clear();
  return negated;
}

/* Words of a tensor of the maximum rank, far more than is used in practice. */
enum { kMostDims = 64, kMostWords = 3 + 2 * kMostDims };

/* Writes dtype and device, rank, extents and strides of `tensor`, and its address; a single 0 for None. Returns the
 * number of words; 0 if DLPack cannot describe it, or if its type is none of the two. */
static size_t layout_of(const DlExchange *exchange, PyObject *is_neg, PyObject *tensor, PyObject *types, int64_t *words,
                        void **address) {
  *address = NULL;
  if (tensor == Py_None) {
    *words = 0;
    return 1;
  }
  PyObject *type = (PyObject *)Py_TYPE(tensor);
  if (type != PyTuple_GetItem(types, 0) && type != PyTuple_GetItem(types, 1)) return 0;
  DlTensor view;
  memset(&view, 0, sizeof view);
  if (exchange->view(tensor, &view) != 0) {
    PyErr_Clear();
    return 0;
  }
  if (view.ndim < 0 || view.ndim > kMostDims || (view.ndim > 0 && (!view.shape || !view.strides)) ||
      (is_neg != Py_None && is_negated(is_neg, tensor))) {
    return 0;
  }
  *words++ = 1 | (int64_t)view.code << 8 | (int64_t)view.bits << 16 | (int64_t)view.lanes << 24;
  *words++ = (int64_t)view.device_type << 32 | (uint32_t)view.device_index;
  *words++ = view.ndim;
  for (int32_t i = 0; i < view.ndim; ++i) *words++ = view.shape[i];
  for (int32_t i = 0; i < view.ndim; ++i) *words++ = view.strides[i];
  *address = view.data ? (char *)view.data + view.byte_offset : NULL;
  return 3 + 2 * (size_t)view.ndim;
}

/* The layout that is expected of the next tensor: its words, 0 at the end. */
static size_t next_expected(const Words *expected, size_t at) {
  const size_t left = expected->count - at;
  const int64_t *words = expected->items + at;
  const size_t count = left == 0 ? 0 : words[0] == 0 ? 1 : left > 2 ? 3 + 2 * (size_t)words[2] : left + 1;
  return count <= left ? count : 0;
}

PyObject *gsc_tensors_view(PyObject *api, PyObject *tensors, PyObject *types, PyObject *is_neg, PyObject *expected) {
  const DlExchange *exchange = exchange_of(api);
  const Py_ssize_t count = PyList_Size(tensors);
  if (count < 0 || PyTuple_Size(types) != 2) return NULL;
  Words layout = {NULL, 0, 0}, known = {NULL, 0, 0};
  if (expected != Py_None) {
    char *bytes = NULL;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(expected, &bytes, &size) < 0) return NULL;
    known.items = (int64_t *)bytes; /* only read */
    known.count = (size_t)size / sizeof *known.items;
  }
  void **addresses = (void **)calloc((size_t)count + 1, sizeof *addresses);
  char *present = (char *)calloc((size_t)count + 1, 1);
  int has_memory = addresses && present && reserve(&layout, kMostWords);
  int is_known = exchange != NULL;
  size_t at = 0;
  for (Py_ssize_t i = 0; has_memory && is_known && i < count; ++i) {
    PyObject *tensor = PyList_GetItem(tensors, i);
    int64_t *words = layout.items + layout.count;
    const size_t written = layout_of(exchange, is_neg, tensor, types, words, &addresses[i]);
    present[i] = tensor != Py_None;
    if (expected == Py_None) {
      is_known = written != 0;
      layout.count += written;
      has_memory = reserve(&layout, kMostWords);
    } else {
      const size_t wanted = next_expected(&known, at);
      is_known = wanted &&
                 (!present[i] || (written == wanted && memcmp(words, known.items + at, written * sizeof *words) == 0));
      at += wanted;
    }
  }
  PyObject *result = NULL;
  if (!has_memory) {
    PyErr_NoMemory();
  } else if (!is_known || at != known.count) {
    Py_INCREF(Py_None);
    result = Py_None;
  } else {
    PyObject *bytes = expected;
    if (expected == Py_None) {
      bytes = PyBytes_FromStringAndSize((char *)layout.items, (Py_ssize_t)(layout.count * sizeof *layout.items));
    } else {
      Py_INCREF(bytes);
    }
    result = Py_BuildValue("(Ny#y#)", bytes, (char *)addresses, count * (Py_ssize_t)sizeof *addresses, present, count);
  }
  free(present);
  free(addresses);
  free(layout.items);
  return result;
}

/* Whether elements fill the memory between the first and the last, in whatever order of dimensions. */
static int is_dense(const int64_t *extents, const int64_t *strides, int32_t rank, int64_t elements) {
  int64_t expected = 1;
  int64_t inner = 1;
  for (int32_t i = rank - 1; i >= 0 && (extents[i] == 1 || strides[i] == inner); --i) inner *= extents[i];
  if (inner == elements) return 1;
  for (int32_t found = 1; found && expected < elements;) {
    found = 0;
    for (int32_t i = 0; i < rank && !found; ++i) {
      found = extents[i] != 1 && strides[i] == expected;
      if (found) expected *= extents[i];
    }
  }
  return expected == elements || elements == 0;
}

int gsc_layout_next(const int64_t **rest, int64_t *rest_count, LayoutEntry *out) {
  const int64_t *words = *rest;
  if (*rest_count < 3 || words[0] == 0 || *rest_count < 3 + 2 * words[2]) return 0;
  const int64_t type = words[0] >> 8;
  const int64_t kFloat = 2, kBfloat = 4;
  out->dtype = type == (kFloat | 16 << 8 | 1 << 16)    ? GSC_FP16
               : type == (kBfloat | 16 << 8 | 1 << 16) ? GSC_BF16
               : type == (kFloat | 32 << 8 | 1 << 16)  ? GSC_FP32
               : type == (kFloat | 64 << 8 | 1 << 16)  ? GSC_FP64
                                                       : -1;
  out->bits = (int32_t)(type >> 8 & 0xff);
  out->rank = (int32_t)words[2];
  out->words = words + 1;
  out->elements = 1;
  for (int32_t i = 0; i < out->rank; ++i) out->elements *= words[3 + i];
  *rest += 3 + 2 * out->rank;
  *rest_count -= 3 + 2 * out->rank;
  return is_dense(words + 3, words + 3 + out->rank, out->rank, out->elements);
}
