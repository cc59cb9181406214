/* SPDX-License-Identifier: Apache-2.0
 *
 * See torch_look.h. A layout is a sequence of words: for each tensor its dtype and device, rank, extents and strides; a
 * single 0 for None.
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

/* Appends room for `more` words; NULL if allocation failed. */
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

/* DLPack does not tell that a view is negated. One with several elements has gaps, as PyTorch's imag makes it; only
 * as_strided can close them. */
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

/* Words of a tensor of the maximum rank, far more than is used in practice. */
enum { kMostDims = 64, kMostWords = 3 + 2 * kMostDims };

/* Writes the words of `tensor`, which may be None, and its address. Returns their count; 0 if DLPack cannot describe
 * it, or if its type is neither of the two. */
static size_t describe(const DlExchange *exchange, PyObject *tensor, PyObject *type, PyObject *parameter,
                       int64_t *words, void **address) {
  *address = NULL;
  if (tensor == Py_None) {
    *words = 0;
    return 1;
  }
  if ((PyObject *)Py_TYPE(tensor) != type && (PyObject *)Py_TYPE(tensor) != parameter) return 0;
  DlTensor view;
  memset(&view, 0, sizeof view);
  if (exchange->view(tensor, &view) != 0) {
    PyErr_Clear();
    return 0;
  }
  if (view.ndim < 0 || view.ndim > kMostDims || (view.ndim > 0 && (!view.shape || !view.strides)) ||
      is_negated(tensor, &view)) {
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

PyObject *gsc_torch_look(PyObject *api, PyObject *tensors, PyObject *type, PyObject *parameter) {
  const DlExchange *exchange = exchange_of(api);
  const Py_ssize_t count = PyList_Size(tensors);
  if (count < 0) return NULL;
  Words layout = {NULL, 0, 0};
  void **addresses = (void **)calloc((size_t)count + 1, sizeof *addresses);
  Seen seen = !addresses ? kNoMemory : exchange ? kSeen : kUnknown;
  for (Py_ssize_t i = 0; seen == kSeen && i < count; ++i) {
    int64_t words[kMostWords];
    const size_t written = describe(exchange, PyList_GetItem(tensors, i), type, parameter, words, &addresses[i]);
    int64_t *end = written ? extend(&layout, written) : NULL;
    if (end) memcpy(end, words, written * sizeof *words);
    seen = end ? kSeen : written ? kNoMemory : kUnknown;
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

/* A layout to compare tensors with, one by one. */
typedef struct Known {
  const char *at;
  size_t left;
} Known;

static int goes_on(Known *known, const void *words, size_t bytes) {
  if (bytes == 0 || bytes > known->left || memcmp(known->at, words, bytes) != 0) return 0;
  known->at += bytes;
  known->left -= bytes;
  return 1;
}

static int open_bytes(PyObject *bytes, Known *known) {
  char *at = NULL;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(bytes, &at, &size) < 0) return 0;
  known->at = at;
  known->left = (size_t)size;
  return 1;
}

/* Parameters are inspected in blocks, and each block in loops that do one thing: going from a parameter to its gradient
 * and on to the next, most of the time would be spent waiting for memory. */
enum { kBlock = 64 };

typedef struct Block {
  PyObject *params[kBlock];
  PyObject *grads[kBlock];
  Py_ssize_t count; /* params that are held */
  Py_ssize_t read;  /* grads that are held */
} Block;

static void let_go(Block *block) {
  for (Py_ssize_t i = 0; i < block->read; ++i) Py_DECREF(block->grads[i]);
  for (Py_ssize_t i = 0; i < block->count; ++i) Py_DECREF(block->params[i]);
  block->count = block->read = 0;
}

static int all_go_on(const DlExchange *exchange, PyObject *const *objects, Py_ssize_t count, PyObject *type,
                     PyObject *parameter, Known *layout, void **addresses) {
  int64_t words[kMostWords];
  for (Py_ssize_t i = 0; i < count; ++i) {
    const size_t written = describe(exchange, objects[i], type, parameter, words, &addresses[i]);
    if (!goes_on(layout, words, written * sizeof *words)) return 0;
  }
  return 1;
}

/* 1: the parameters of the block and their gradients are unchanged, and the gradients' addresses are at `out`; 0:
 * changed; -1: an exception. */
static int is_same(Block *block, const DlExchange *exchange, PyObject *name, PyObject *type, PyObject *parameter,
                   Known *params, Known *addresses, Known *grads, char *out) {
  void *found[kBlock];
  /* First, since reading .grad can run user code. */
  for (; block->read < block->count; ++block->read) {
    block->grads[block->read] = PyObject_GetAttr(block->params[block->read], name);
    if (!block->grads[block->read]) return -1;
  }
  if (!all_go_on(exchange, block->params, block->count, type, parameter, params, found) ||
      !goes_on(addresses, found, (size_t)block->count * sizeof *found) ||
      !all_go_on(exchange, block->grads, block->count, type, parameter, grads, found)) {
    return 0;
  }
  memcpy(out, found, (size_t)block->count * sizeof *found);
  return 1;
}

PyObject *gsc_torch_same(PyObject *api, PyObject *lists, PyObject *tensors, PyObject *params, PyObject *addresses,
                         PyObject *grads, PyObject *type, PyObject *parameter) {
  const DlExchange *exchange = exchange_of(api);
  const Py_ssize_t count = PyList_Size(tensors);
  const Py_ssize_t list_count = PyList_Size(lists);
  Known known_params, known_addresses, known_grads;
  if (count < 0 || list_count < 0 || !open_bytes(params, &known_params) || !open_bytes(addresses, &known_addresses) ||
      !open_bytes(grads, &known_grads)) {
    return NULL;
  }
  PyObject *name = PyUnicode_InternFromString("grad");
  PyObject *result = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(void *));
  char *found = result ? PyBytes_AsString(result) : NULL;
  int same = !name || !found ? -1 : exchange != NULL;
  Block block = {.count = 0, .read = 0};
  Py_ssize_t done = 0;
  for (Py_ssize_t l = 0; same == 1 && l < list_count; ++l) {
    PyObject *list = PyList_GetItem(lists, l);
    same = list && PyList_Check(list);
    /* User code may have changed the list, so its size is read again. */
    for (Py_ssize_t i = 0; same == 1 && i < PyList_Size(list);) {
      while (block.count < kBlock && i < PyList_Size(list)) {
        PyObject *param = PyList_GetItem(list, i++);
        same = done + block.count < count && param == PyList_GetItem(tensors, done + block.count);
        if (!same) break;
        Py_INCREF(param);
        block.params[block.count++] = param;
      }
      if (same == 1) {
        same = is_same(&block, exchange, name, type, parameter, &known_params, &known_addresses, &known_grads,
                       found + done * (Py_ssize_t)sizeof(void *));
      }
      done += block.count;
      let_go(&block);
    }
  }
  Py_XDECREF(name);
  if (same == 1 && done == count && !PyErr_Occurred()) return result;
  Py_XDECREF(result);
  if (PyErr_Occurred()) return NULL;
  Py_INCREF(Py_None);
  return Py_None;
}
