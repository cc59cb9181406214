/* SPDX-License-Identifier: Apache-2.0
 *
 * Many tensors at once, for optimizers that check all in every step; see intake.h. With many small tensors this takes
 * longer than the step: of each, some 15 cache lines are read in PyTorch's objects. Loops that do one thing each, over
 * blocks of tensors, take four fifths of the time that one loop takes, or loops over all of them.
 */
#define PY_SSIZE_T_CLEAN
#include <stdlib.h>
#include <string.h>

#include "dlpack.h"
#include "gradscaler/gradscaler.h"
#include "intake.h"

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
enum { kMostDims = 64, kHeadWords = 3, kMostWords = kHeadWords + 2 * kMostDims };

static int64_t type_word(const DlTensor *view) {
  return 1 | (int64_t)view->code << 8 | (int64_t)view->bits << 16 | (int64_t)view->lanes << 24;
}

static int64_t device_word(const DlTensor *view) {
  return (int64_t)view->device_type << 32 | (uint32_t)view->device_index;
}

/* That of one element is never taken. */
static int64_t stride_word(const DlTensor *view, size_t dim) { return view->shape[dim] == 1 ? 1 : view->strides[dim]; }

static void *address_of(const DlTensor *view) { return view->data ? (char *)view->data + view->byte_offset : NULL; }

enum { kMostClasses = 64 };

/* Those that a tensor may be of, borrowed. */
typedef struct Classes {
  PyObject *items[kMostClasses];
  Py_ssize_t count;
} Classes;

static int open_classes(PyObject *tuple, Classes *out) {
  out->count = PyTuple_Size(tuple);
  for (Py_ssize_t i = 0; i < out->count && i < kMostClasses; ++i) out->items[i] = PyTuple_GetItem(tuple, i);
  if (out->count > kMostClasses) PyErr_SetString(PyExc_ValueError, "too many classes of tensors");
  return out->count >= 0 && out->count <= kMostClasses;
}

/* The view of a tensor; 0 if DLPack cannot describe it, or if its type is none of `classes`. */
static int view_of(const DlExchange *exchange, const Classes *classes, PyObject *is_neg, PyObject *tensor,
                   DlTensor *out) {
  PyObject *type = (PyObject *)Py_TYPE(tensor);
  Py_ssize_t i = 0;
  while (i < classes->count && classes->items[i] != type) ++i;
  if (i == classes->count) return 0;
  memset(out, 0, sizeof *out);
  if (exchange->view(tensor, out) != 0) {
    PyErr_Clear();
    return 0;
  }
  return out->ndim >= 0 && out->ndim <= kMostDims && (out->ndim == 0 || (out->shape && out->strides)) &&
         (is_neg == Py_None || !is_negated(is_neg, tensor));
}

PyObject *gsc_tensors_view(PyObject *api, PyObject *tensors, PyObject *types, PyObject *is_neg) {
  const DlExchange *exchange = exchange_of(api);
  const Py_ssize_t count = PyList_Size(tensors);
  Classes classes;
  if (count < 0 || !open_classes(types, &classes)) return NULL;
  Words layout = {NULL, 0, 0};
  void **addresses = (void **)calloc((size_t)count + 1, sizeof *addresses);
  char *present = (char *)calloc((size_t)count + 1, 1);
  int has_memory = addresses && present && reserve(&layout, kMostWords);
  int is_known = exchange != NULL;
  for (Py_ssize_t i = 0; has_memory && is_known && i < count; ++i) {
    PyObject *tensor = PyList_GetItem(tensors, i);
    int64_t *words = layout.items + layout.count;
    DlTensor view;
    if (tensor == Py_None) {
      words[0] = 0;
      layout.count += 1;
    } else if ((is_known = view_of(exchange, &classes, is_neg, tensor, &view))) {
      words[0] = type_word(&view);
      words[1] = device_word(&view);
      words[2] = view.ndim;
      words += kHeadWords;
      for (size_t dim = 0; dim < (size_t)view.ndim; ++dim) {
        words[dim] = view.shape[dim];
        words[(size_t)view.ndim + dim] = stride_word(&view, dim);
      }
      layout.count += kHeadWords + 2 * (size_t)view.ndim;
      addresses[i] = address_of(&view);
      present[i] = 1;
    }
    has_memory = reserve(&layout, kMostWords);
  }
  PyObject *result = NULL;
  if (!has_memory) {
    PyErr_NoMemory();
  } else if (!is_known) {
    Py_INCREF(Py_None);
    result = Py_None;
  } else {
    result = Py_BuildValue("(y#y#y#)", (char *)layout.items, (Py_ssize_t)(layout.count * sizeof *layout.items),
                           (char *)addresses, count * (Py_ssize_t)sizeof *addresses, present, count);
  }
  free(present);
  free(addresses);
  free(layout.items);
  return result;
}

/* Whether a tensor has the layout at *rest, which is moved on; NULL has any. */
static int has_layout(const DlTensor *view, const int64_t **rest, const int64_t *end) {
  const int64_t *words = *rest;
  if (words == end) return 0;
  const size_t dims = words[0] == 0 ? 0 : (size_t)words[2];
  *rest += words[0] == 0 ? 1 : kHeadWords + 2 * dims;
  if (!view) return 1;
  if (words[0] != type_word(view) || words[1] != device_word(view) || (size_t)view->ndim != dims) return 0;
  words += kHeadWords;
  for (size_t i = 0; i < dims; ++i) {
    if (words[i] != view->shape[i] || words[dims + i] != stride_word(view, i)) return 0;
  }
  return 1;
}

/* What is left of the words in a bytes object. */
typedef struct Rest {
  const int64_t *at;
  const int64_t *end;
} Rest;

static int open_rest(PyObject *bytes, Rest *out) {
  char *start = NULL;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(bytes, &start, &size) < 0) return 0;
  out->at = (const int64_t *)start;
  out->end = out->at + size / (Py_ssize_t)sizeof(int64_t);
  return 1;
}

typedef struct Step {
  const DlExchange *exchange;
  Classes classes;
  PyObject *is_neg, *params; /* known */
  Rest layout, places, grad_layout;
  PyObject *name;  /* "grad" */
  PyObject *given; /* gradients, or None */
  PyObject *tell;
  PyObject *grads; /* found */
  void **addresses;
  char *present;
} Step;

/* Parameters whose memory stays in the nearest caches from one loop over them to the next. */
enum { kBlock = 128 };

static int take_grads(Step *step, Py_ssize_t first, Py_ssize_t last) {
  for (Py_ssize_t i = first; i < last; ++i) {
    PyObject *grad = step->given == Py_None ? PyObject_GetAttr(PyList_GetItem(step->params, i), step->name)
                                            : PyList_GetItem(step->given, i);
    if (!grad) return 0;
    if (step->given != Py_None) Py_INCREF(grad);
    PyList_SetItem(step->grads, i, grad);
    step->present[i] = grad != Py_None;
  }
  return 1;
}

static int are_grads_alike(Step *step, Py_ssize_t first, Py_ssize_t last) {
  DlTensor view;
  for (Py_ssize_t i = first; i < last; ++i) {
    const int is_here = step->present[i];
    if (is_here && !view_of(step->exchange, &step->classes, step->is_neg, PyList_GetItem(step->grads, i), &view)) {
      return 0;
    }
    if (!has_layout(is_here ? &view : NULL, &step->grad_layout.at, step->grad_layout.end)) return 0;
    step->addresses[i] = is_here ? address_of(&view) : NULL;
  }
  return 1;
}

/* Those of `params` must be the ones that are known, which hold them whatever becomes of the list meanwhile. */
static int are_params_same(Step *step, PyObject *params, Py_ssize_t first, Py_ssize_t last) {
  DlTensor view;
  for (Py_ssize_t i = first; i < last; ++i) {
    PyObject *param = PyList_GetItem(params, i);
    if (!param || param != PyList_GetItem(step->params, i) ||
        !view_of(step->exchange, &step->classes, Py_None, param, &view) ||
        !has_layout(&view, &step->layout.at, step->layout.end) ||
        (int64_t)(intptr_t)address_of(&view) != step->places.at[i]) {
      return 0;
    }
  }
  return 1;
}

/* Calls `tell` with the parameters whose gradient is there. */
static int tell_written(Step *step, Py_ssize_t first, Py_ssize_t last) {
  if (step->tell == Py_None) return 1;
  PyObject *written = PyList_New(0);
  int done = written != NULL;
  for (Py_ssize_t i = first; done && i < last; ++i) {
    done = !step->present[i] || PyList_Append(written, PyList_GetItem(step->params, i)) == 0;
  }
  PyObject *answer = done ? PyObject_CallFunctionObjArgs(step->tell, written, NULL) : NULL;
  Py_XDECREF(written);
  Py_XDECREF(answer);
  return answer != NULL;
}

/* 1 if the parameters from `first` to `last` are as they were, 0 if not, -1 with an exception. */
static int look_at_block(Step *step, PyObject *params, Py_ssize_t first, Py_ssize_t last) {
  if (!take_grads(step, first, last)) return -1;
  if (!are_grads_alike(step, first, last) || !are_params_same(step, params, first, last)) return 0;
  return tell_written(step, first, last) ? 1 : -1;
}

PyObject *gsc_step_view(PyObject *api, PyObject *params, PyObject *grads, PyObject *known, PyObject *tell) {
  Step step;
  PyObject *types, *layout, *places, *grad_layout;
  if (!PyArg_ParseTuple(known, "OOOOOO", &types, &step.is_neg, &step.params, &layout, &places, &grad_layout) ||
      !open_classes(types, &step.classes) || !open_rest(layout, &step.layout) || !open_rest(places, &step.places) ||
      !open_rest(grad_layout, &step.grad_layout)) {
    return NULL;
  }
  const Py_ssize_t count = PyList_Size(params);
  if (count < 0) return NULL;
  step.exchange = exchange_of(api);
  int is_known = step.exchange && count == step.places.end - step.places.at && count == PyList_Size(step.params);
  step.given = grads;
  step.tell = tell;
  step.name = PyUnicode_InternFromString("grad");
  step.grads = PyList_New(is_known ? count : 0);
  PyObject *addresses = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(void *));
  PyObject *present = PyBytes_FromStringAndSize(NULL, count);
  if (step.name && step.grads && addresses && present) {
    step.addresses = (void **)PyBytes_AsString(addresses);
    step.present = PyBytes_AsString(present);
  } else {
    is_known = -1;
  }
  for (Py_ssize_t i = 0; is_known == 1 && i < count; i += kBlock) {
    is_known = look_at_block(&step, params, i, i + kBlock < count ? i + kBlock : count);
  }
  PyObject *result = NULL;
  if (is_known == 1) {
    result = PyTuple_Pack(3, step.grads, addresses, present);
  } else if (is_known == 0) {
    PyErr_Clear();
    Py_INCREF(Py_None);
    result = Py_None;
  }
  Py_XDECREF(step.name);
  Py_XDECREF(step.grads);
  Py_XDECREF(addresses);
  Py_XDECREF(present);
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
