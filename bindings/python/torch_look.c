/* SPDX-License-Identifier: Apache-2.0
 *
 * See torch_look.h. The layout is a row of words: for each tensor its dtype and device, its rank, its extents and its
 * strides; a single 0 for None.
 */
#define PY_SSIZE_T_CLEAN
#include "torch_look.h"

#include <stdlib.h>
#include <string.h>

#include "dlpack.h"

typedef struct Words {
  int64_t *items;
  size_t count;
  size_t capacity;
} Words;

/* Room for `more` words at the end; NULL if memory is short. */
static int64_t *extend(Words *words, size_t more) {
  if (words->count + more > words->capacity) {
    const size_t capacity = 2 * (words->count + more) + 64;
    int64_t *items = (int64_t *)realloc(words->items, capacity * sizeof *items);
    if (!items) return NULL;
    words->items = items;
    words->capacity = capacity;
  }
  int64_t *end = words->items + words->count;
  words->count += more;
  return end;
}

static const DlExchange *exchange_of(PyObject *api) {
  const DlExchange *found = (const DlExchange *)PyCapsule_GetPointer(api, "dlpack_exchange_api");
  if (!found) PyErr_Clear();
  while (found && found->major != 1) found = found->older;
  return found && found->view ? found : NULL;
}

/* A view that negates its memory says so nowhere in DLPack. One with several elements has gaps. */
static int is_negated(PyObject *tensor, const DlTensor *view) {
  for (int32_t i = 0; i < view->ndim; ++i) {
    if (view->shape[i] != 1) return 0;
  }
  PyObject *answer = PyObject_CallMethod(tensor, "is_neg", NULL);
  const int negated = !answer || PyObject_IsTrue(answer) != 0;
  Py_XDECREF(answer);
  PyErr_Clear();
  return negated;
}

typedef enum Seen { kSeen, kUnknown, kNoMemory } Seen;

static Seen see(const DlExchange *exchange, PyObject *tensor, Words *layout, void **address) {
  DlTensor view;
  memset(&view, 0, sizeof view);
  if (exchange->view(tensor, &view) != 0) {
    PyErr_Clear();
    return kUnknown;
  }
  if (view.ndim < 0 || (view.ndim > 0 && (!view.shape || !view.strides)) || is_negated(tensor, &view)) return kUnknown;
  int64_t *words = extend(layout, 3 + 2 * (size_t)view.ndim);
  if (!words) return kNoMemory;
  *words++ = 1 | (int64_t)view.code << 8 | (int64_t)view.bits << 16 | (int64_t)view.lanes << 24;
  *words++ = (int64_t)view.device_type << 32 | (uint32_t)view.device_index;
  *words++ = view.ndim;
  for (int32_t i = 0; i < view.ndim; ++i) *words++ = view.shape[i];
  for (int32_t i = 0; i < view.ndim; ++i) *words++ = view.strides[i];
  *address = view.data ? (char *)view.data + view.byte_offset : NULL;
  return kSeen;
}

PyObject *gsc_torch_look(PyObject *api, PyObject *tensors, PyObject *type, PyObject *parameter) {
  const DlExchange *exchange = exchange_of(api);
  const Py_ssize_t count = PyList_Size(tensors);
  if (count < 0) return NULL;
  Words layout = {NULL, 0, 0};
  void **addresses = (void **)calloc((size_t)count + 1, sizeof *addresses);
  Seen seen = !addresses ? kNoMemory : exchange ? kSeen : kUnknown;
  for (Py_ssize_t i = 0; seen == kSeen && i < count; ++i) {
    PyObject *tensor = PyList_GetItem(tensors, i);
    if (tensor == Py_None) {
      int64_t *word = extend(&layout, 1);
      if (word) *word = 0;
      seen = word ? kSeen : kNoMemory;
    } else if ((PyObject *)Py_TYPE(tensor) == type || (PyObject *)Py_TYPE(tensor) == parameter) {
      seen = see(exchange, tensor, &layout, &addresses[i]);
    } else {
      seen = kUnknown;
    }
  }
  PyObject *result = NULL;
  if (seen == kSeen) {
    result = Py_BuildValue("(y#y#)", layout.items ? (char *)layout.items : "",
                           (Py_ssize_t)(layout.count * sizeof *layout.items), (char *)addresses,
                           count * (Py_ssize_t)sizeof *addresses);
  } else if (seen == kNoMemory) {
    PyErr_NoMemory();
  } else {
    Py_INCREF(Py_None);
    result = Py_None;
  }
  free(addresses);
  free(layout.items);
  return result;
}
