/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What every part of an example needs: the function table of the loaded library, an open context, and tensors that own
 * their memory. An example may give up: a failed call prints the library's sentence and ends the program.
 */
#include <gradscaler/api.h>
#include <stddef.h>

/** The loaded library and an open context of it. */
typedef struct device {
  const gsc_api *api;
  gsc_context *context;
} device;

/** Opens the CPU with so many threads; 0: all. */
void device_open(device *d, const gsc_api *api, int threads);
void device_close(device *d);

/** Ends the program with the library's message unless status is GSC_OK. `what` names the attempt. */
void require(const device *d, gsc_status status, const char *what);
/** The same of a call of the library's function table. */
#define CALL(d, call, what) require(d, (d)->api->call, what)

/** Zeroed memory, or the end of the program. */
void *allocate(size_t count, size_t size);

/** A zeroed tensor. Free it with tensor_free. */
gsc_tensor tensor_make(int32_t dtype, int64_t count);
void tensor_free(gsc_tensor *t);
/** The first `count` elements of a tensor, which keeps the memory. */
gsc_tensor tensor_first(const gsc_tensor *t, int64_t count);
/** The caller's array as a tensor. */
gsc_tensor tensor_of(float *values, int64_t count);
/** dst = src, rounded to dst's dtype. Equal counts. */
void tensor_cast(const device *d, gsc_tensor src, gsc_tensor dst);
