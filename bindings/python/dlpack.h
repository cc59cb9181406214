/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of DLPack that are used here, with the layout of its specification, so that nothing has to be installed:
 * tensors, the capsules that carry them, and version 1.2's table of C functions.
 */
#ifndef GRADSCALER_PYTHON_DLPACK_H
#define GRADSCALER_PYTHON_DLPACK_H
#include <stdint.h>

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

enum { kDlReadOnly = 1, kDlIsCopied = 2 };

/* Functions not called here are void pointers of the same size. */
typedef struct DlExchange {
  uint32_t major;
  uint32_t minor;
  const struct DlExchange *older;
  void *allocate;
  void *to_managed;
  void *from_managed;
  /* Fills in a view that is valid until control returns; -1 with an exception. May be NULL. */
  int (*view)(void *object, DlTensor *out);
  void *current_stream;
} DlExchange;

#endif /* GRADSCALER_PYTHON_DLPACK_H */
