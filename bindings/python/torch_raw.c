/* SPDX-License-Identifier: Apache-2.0
 *
 * See torch_raw.h. The layout is that of PyTorch 2.13 on 64-bit Linux: c10::TensorImpl, c10::StorageImpl,
 * c10::VariableVersion and torch::autograd::AutogradMeta.
 */
#define PY_SSIZE_T_CLEAN
#include "torch_raw.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__linux__) && defined(__LP64__) && !defined(Py_GIL_DISABLED)

/* Bytes from the beginning of each object. */
enum {
  kVirtual = 0,
  kStorage = 16,
  kAutograd = 24,
  kExtra = 32,
  kVersions = 40,
  kObject = 48,
  kDims = 56,
  kSizes = 64,
  kMostDims = 5, /* more are kept elsewhere */
  kStrides = kSizes + 8 * kMostDims,
  kOffset = 144,
  kCount = 152,
  kDtype = 160, /* 2 bytes; then the device, 3, and flags, 3 */
  kKeys = 168,
  kImplBytes = 176,

  kGradient = 40, /* in AutogradMeta, behind a std::string */
  kVersion = 16,  /* in the counter of versions */

  kData = 16, /* in StorageImpl */
  kBytes = 48,
  kChecks = 59,
};

/* Of the flags: is_wrapped_number_, allow_tensor_metadata_change_ and reserved_, which differ between tensors of the
 * same memory, and the last bit, which nobody sets. The mask is for the word at kDtype. */
static const uint64_t kIgnored = UINT64_C(1) << 47 | UINT64_C(3) << 48 | UINT64_C(1) << 63;

static inline uintptr_t word(uintptr_t at, size_t offset) {
  uintptr_t value;
  memcpy(&value, (const char *)at + offset, sizeof value);
  return value;
}

static inline uintptr_t impl_of(PyObject *tensor) { return word((uintptr_t)tensor, sizeof(PyObject)); }

static inline void fetch(uintptr_t at, size_t offset) { __builtin_prefetch((const char *)at + offset); }

static inline void fetch_impl(uintptr_t impl) {
  fetch(impl, 0);
  fetch(impl, 64);
  fetch(impl, 128);
  fetch(impl, kImplBytes - 1);
}

/* c10::ScalarType; 0 for one that is not stepped on. */
static inline uint64_t item_size(uint64_t dtype) {
  switch (dtype & 0xffff) {
    case 5:
      return 2;
    case 6:
      return 4;
    case 7:
      return 8;
    case 15:
      return 2;
    default:
      return 0;
  }
}

PyObject *gsc_torch_raw_address(PyObject *tensor) { return PyLong_FromVoidPtr((void *)impl_of(tensor)); }

PyObject *gsc_torch_raw_fields(PyObject *tensor) {
  const uintptr_t impl = impl_of(tensor);
  enum { kFields = 7 + 2 * kMostDims + 4 };
  static const uint8_t offsets[] = {kStorage, kAutograd, kExtra, kVersions, kObject, kVirtual, kDims};
  PyObject *fields = PyTuple_New(kFields);
  for (Py_ssize_t i = 0; fields && i < kFields; ++i) {
    const size_t offset = i < 7 ? offsets[i] : (size_t)kSizes + 8 * (size_t)(i - 7);
    PyObject *value = PyLong_FromUnsignedLongLong(word(impl, offset));
    if (!value || PyTuple_SetItem(fields, i, value) < 0) Py_CLEAR(fields);
  }
  return fields;
}

PyObject *gsc_torch_raw_behind(PyObject *tensor) {
  const uintptr_t impl = impl_of(tensor);
  const uintptr_t autograd = word(impl, kAutograd), versions = word(impl, kVersions), storage = word(impl, kStorage);
  uint32_t version = 0;
  if (versions) memcpy(&version, (const char *)versions + kVersion, sizeof version);
  return Py_BuildValue("(KIKKi)", (unsigned long long)(autograd ? word(autograd, kGradient) : 0), version,
                       (unsigned long long)word(storage, kData), (unsigned long long)word(storage, kBytes),
                       ((const char *)storage)[kChecks] != 0);
}

/* What is compared of a tensor. Rows of the same shape share one. */
typedef struct Layout {
  uint64_t dims;
  uint64_t sizes[kMostDims];
  uint64_t strides[kMostDims];
  uint64_t count;
  uint64_t dtype; /* with the device and the flags */
  uint64_t keys;
  uint64_t item;
} Layout;

/* 0 if it has more dimensions, is symbolic or named, or is of a dtype that is not stepped on. */
static int read_layout(uintptr_t impl, Layout *layout) {
  memset(layout, 0, sizeof *layout);
  layout->dims = word(impl, kDims);
  if (layout->dims > kMostDims || word(impl, kExtra)) return 0;
  memcpy(layout->sizes, (const char *)impl + kSizes, 8 * layout->dims);
  memcpy(layout->strides, (const char *)impl + kStrides, 8 * layout->dims);
  layout->count = word(impl, kCount);
  layout->dtype = word(impl, kDtype) & ~kIgnored;
  layout->keys = word(impl, kKeys);
  layout->item = item_size(layout->dtype);
  return layout->item != 0;
}

static inline int has_layout(uintptr_t impl, const Layout *layout) {
  if (word(impl, kDims) != layout->dims || word(impl, kExtra) || word(impl, kCount) != layout->count ||
      (word(impl, kDtype) & ~kIgnored) != layout->dtype || word(impl, kKeys) != layout->keys) {
    return 0;
  }
  for (uint64_t i = 0; i < layout->dims; ++i) {
    if (word(impl, kSizes + 8 * i) != layout->sizes[i] || word(impl, kStrides + 8 * i) != layout->strides[i]) return 0;
  }
  return 1;
}

/* The address of the first element; 0 if the storage has fewer bytes than the tensor, or a pointer that is not to be
 * had without a check, as one that is copied when it is first written. */
static inline uintptr_t data_of(uintptr_t impl, const Layout *layout) {
  const uintptr_t storage = word(impl, kStorage);
  const uint64_t offset = word(impl, kOffset) * layout->item, bytes = layout->count * layout->item;
  const uintptr_t data = word(storage, kData);
  if (!data || ((const char *)storage)[kChecks] || word(storage, kBytes) < offset + bytes) return 0;
  return data + offset;
}

typedef struct Row {
  PyObject *param; /* only compared: who records must hold it */
  uintptr_t data;
  uint32_t layout;
  uint32_t grad_layout; /* kNone: there is no gradient */
} Row;

enum { kNone = UINT32_MAX };

typedef struct Record {
  PyObject *types[2];
  uintptr_t plain;  /* virtual functions of tensors that are not of a class of their own in C++ */
  uintptr_t absent; /* undefined gradients */
  Py_ssize_t count;
  Row *rows;
  Layout *layouts; /* at most two a row */
  uint32_t layout_count;
} Record;

static const char kRecord[] = "gradscaler.torch_raw";

static void free_record(Record *record) {
  Py_XDECREF(record->types[0]);
  Py_XDECREF(record->types[1]);
  free(record->rows);
  free(record->layouts);
  free(record);
}

static void destroy_record(PyObject *capsule) { free_record((Record *)PyCapsule_GetPointer(capsule, kRecord)); }

static inline int has_type(const Record *record, PyObject *object) {
  PyObject *type = (PyObject *)Py_TYPE(object);
  return type == record->types[0] || type == record->types[1];
}

/* 0 for an undefined one. */
static inline uintptr_t grad_of(const Record *record, uintptr_t impl) {
  const uintptr_t autograd = word(impl, kAutograd);
  const uintptr_t grad = autograd ? word(autograd, kGradient) : 0;
  return grad == record->absent ? 0 : grad;
}

/* Whether the implementation is a plain tensor's, and its Python object, if it has one by now, not of a subclass. */
static inline int is_plain(const Record *record, uintptr_t impl) {
  PyObject *object = (PyObject *)word(impl, kObject);
  return word(impl, kVirtual) == record->plain && (!object || has_type(record, object));
}

/* The number of a layout, which is most often one of the last two; kNone if it cannot be compared. */
static uint32_t layout_number(Record *record, uintptr_t impl) {
  Layout layout;
  if (!is_plain(record, impl) || !read_layout(impl, &layout)) return kNone;
  for (uint32_t back = 1; back <= 2 && back <= record->layout_count; ++back) {
    const uint32_t number = record->layout_count - back;
    if (memcmp(&record->layouts[number], &layout, sizeof layout) == 0) return number;
  }
  record->layouts[record->layout_count] = layout;
  return record->layout_count++;
}

static int record_row(Record *record, PyObject *param, Row *row, uintptr_t *address, uintptr_t *grad_address) {
  if (!has_type(record, param)) return 0;
  const uintptr_t impl = impl_of(param), grad = grad_of(record, impl);
  row->param = param;
  row->layout = layout_number(record, impl);
  if (row->layout == kNone) return 0;
  *address = row->data = data_of(impl, &record->layouts[row->layout]);
  row->grad_layout = grad ? layout_number(record, grad) : kNone;
  *grad_address = row->grad_layout == kNone ? 0 : data_of(grad, &record->layouts[row->grad_layout]);
  return row->data && (!grad || *grad_address);
}

PyObject *gsc_torch_raw_record(PyObject *params, PyObject *types, PyObject *plain, PyObject *absent) {
  const Py_ssize_t count = PyList_Size(params);
  if (count < 0 || PyTuple_Size(types) != 2) return NULL;
  Record *record = (Record *)calloc(1, sizeof *record);
  if (!record) return PyErr_NoMemory();
  for (int i = 0; i < 2; ++i) {
    record->types[i] = PyTuple_GetItem(types, i);
    Py_XINCREF(record->types[i]);
  }
  record->plain = (uintptr_t)PyLong_AsVoidPtr(plain);
  record->absent = (uintptr_t)PyLong_AsVoidPtr(absent);
  record->count = count;
  record->rows = (Row *)calloc((size_t)count + 1, sizeof *record->rows);
  record->layouts = (Layout *)calloc(2 * (size_t)count + 1, sizeof *record->layouts);
  const Py_ssize_t bytes = count * (Py_ssize_t)sizeof(uintptr_t);
  PyObject *own = PyBytes_FromStringAndSize(NULL, bytes), *grads = PyBytes_FromStringAndSize(NULL, bytes);
  if (!record->rows || !record->layouts) PyErr_NoMemory();
  int known = !PyErr_Occurred();
  for (Py_ssize_t i = 0; known && i < count; ++i) {
    known = record_row(record, PyList_GetItem(params, i), &record->rows[i], (uintptr_t *)PyBytes_AsString(own) + i,
                       (uintptr_t *)PyBytes_AsString(grads) + i);
  }
  PyObject *result = NULL;
  if (known) {
    /* What was reserved for shapes that are not there. */
    Layout *kept = (Layout *)realloc(record->layouts, (record->layout_count + 1) * sizeof *kept);
    if (kept) record->layouts = kept;
    PyObject *capsule = PyCapsule_New(record, kRecord, destroy_record);
    if (capsule) {
      record = NULL;
      result = Py_BuildValue("(NOO)", capsule, own, grads);
    }
  } else if (!PyErr_Occurred()) {
    Py_INCREF(Py_None);
    result = Py_None;
  }
  if (record) free_record(record);
  Py_XDECREF(own);
  Py_XDECREF(grads);
  return result;
}

/* Whether `lists` has the recorded objects, none of which is looked into. */
static int are_params(const Record *record, PyObject *lists) {
  Py_ssize_t done = 0;
  const Py_ssize_t list_count = PyList_Size(lists);
  for (Py_ssize_t l = 0; l < list_count; ++l) {
    PyObject *list = PyList_GetItem(lists, l);
    const Py_ssize_t size = PyList_Check(list) ? PyList_Size(list) : -1;
    if (size < 0 || size > record->count - done) return 0;
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (PyList_GetItem(list, i) != record->rows[done++].param) return 0;
    }
  }
  return done == record->count;
}

/* Parameters are inspected in blocks. Each round over a block asks for the memory of the next, and what is there by then
 * is where that lies: else most of the time would be spent waiting. */
enum { kBlock = 32 };

/* Writes the addresses of the gradients; 0 if anything is different. */
static int is_block_same(const Record *record, const Row *rows, size_t count, uintptr_t *addresses) {
  uintptr_t impls[kBlock], grads[kBlock];
  for (size_t i = 0; i < count; ++i) fetch((uintptr_t)rows[i].param, 0);
  for (size_t i = 0; i < count; ++i) fetch_impl(impls[i] = impl_of(rows[i].param));
  for (size_t i = 0; i < count; ++i) {
    fetch(word(impls[i], kAutograd), kGradient);
    fetch(word(impls[i], kStorage), kData);
    fetch(word(impls[i], kStorage), kChecks);
    fetch(word(impls[i], kVersions), kVersion); /* for who marks them as written next */
  }
  for (size_t i = 0; i < count; ++i) {
    grads[i] = grad_of(record, impls[i]);
    if (grads[i]) fetch_impl(grads[i]);
  }
  for (size_t i = 0; i < count; ++i) {
    if (!grads[i]) continue;
    fetch(word(grads[i], kStorage), kData);
    fetch(word(grads[i], kStorage), kChecks);
    if (word(grads[i], kObject)) fetch(word(grads[i], kObject), 0);
  }
  for (size_t i = 0; i < count; ++i) {
    const Row *row = &rows[i];
    const Layout *layout = &record->layouts[row->layout];
    if (!has_type(record, row->param) || !is_plain(record, impls[i]) || !has_layout(impls[i], layout) ||
        data_of(impls[i], layout) != row->data || !grads[i] != (row->grad_layout == kNone)) {
      return 0;
    }
    addresses[i] = 0;
    if (!grads[i]) continue;
    const Layout *grad_layout = &record->layouts[row->grad_layout];
    if (!is_plain(record, grads[i]) || !has_layout(grads[i], grad_layout)) return 0;
    addresses[i] = data_of(grads[i], grad_layout);
    if (!addresses[i]) return 0;
  }
  return 1;
}

PyObject *gsc_torch_raw_same(PyObject *capsule, PyObject *lists) {
  const Record *record = (const Record *)PyCapsule_GetPointer(capsule, kRecord);
  if (!record || PyList_Size(lists) < 0) return NULL;
  PyObject *result = PyBytes_FromStringAndSize(NULL, record->count * (Py_ssize_t)sizeof(uintptr_t));
  if (!result) return NULL;
  uintptr_t *addresses = (uintptr_t *)PyBytes_AsString(result);
  int same = are_params(record, lists);
  for (Py_ssize_t i = 0; same && i < record->count; i += kBlock) {
    const Py_ssize_t left = record->count - i;
    same = is_block_same(record, record->rows + i, (size_t)(left < kBlock ? left : kBlock), addresses + i);
  }
  if (same) return result;
  Py_DECREF(result);
  Py_INCREF(Py_None);
  return Py_None;
}

PyObject *gsc_torch_raw_bump(PyObject *tensors) {
  const Py_ssize_t count = PyList_Size(tensors);
  if (count < 0) return NULL;
  uintptr_t *counters = (uintptr_t *)malloc(((size_t)count + 1) * sizeof *counters);
  if (!counters) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; ++i) {
    counters[i] = impl_of(PyList_GetItem(tensors, i));
    fetch(counters[i], kVersions);
  }
  int all = 1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    counters[i] = word(counters[i], kVersions);
    fetch(counters[i], kVersion);
    all &= counters[i] != 0;
  }
  for (Py_ssize_t i = 0; all && i < count; ++i) {
    /* Autograd's threads may count, too. */
    __atomic_fetch_add((uint32_t *)(counters[i] + kVersion), 1, __ATOMIC_SEQ_CST);
  }
  free(counters);
  return PyBool_FromLong(all);
}

#else

PyObject *gsc_torch_raw_address(PyObject *tensor) {
  (void)tensor;
  return PyLong_FromLong(-1);
}

/* Nobody calls the others here. */
static PyObject *unknown(void) {
  PyErr_SetString(PyExc_RuntimeError, "the layout of PyTorch's tensors is not known on this system");
  return NULL;
}

PyObject *gsc_torch_raw_fields(PyObject *tensor) {
  (void)tensor;
  return unknown();
}

PyObject *gsc_torch_raw_behind(PyObject *tensor) {
  (void)tensor;
  return unknown();
}

PyObject *gsc_torch_raw_record(PyObject *params, PyObject *types, PyObject *plain, PyObject *absent) {
  (void)params, (void)types, (void)plain, (void)absent;
  return unknown();
}

PyObject *gsc_torch_raw_same(PyObject *record, PyObject *lists) {
  (void)record, (void)lists;
  return unknown();
}

PyObject *gsc_torch_raw_bump(PyObject *tensors) {
  (void)tensors;
  return unknown();
}

#endif
