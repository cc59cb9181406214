/* SPDX-License-Identifier: Apache-2.0 */
/* Context, errors and tensors of an example. The library converts between fp16 and fp32. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>

void device_open(device *d, const gsc_api *api, int threads) {
  gsc_context_options options;
  d->api = api;
  d->context = NULL;
  require(d, api->context_options_init(&options, sizeof options), "context options");
  options.num_threads = threads;
  require(d, api->context_create(&options, &d->context), "context");
}

void device_close(device *d) {
  d->api->context_destroy(d->context);
  d->context = NULL;
}

void require(const device *d, gsc_status status, const char *what) {
  if (status == GSC_OK) return;
  fprintf(stderr, "%s: %s (%s)\n", what, d->api->error_get_message(), d->api->status_get_name(status));
  exit(EXIT_FAILURE);
}

void *allocate(size_t count, size_t size) {
  void *memory = calloc(count > 0 ? count : 1, size);
  if (memory == NULL) {
    fprintf(stderr, "out of memory\n");
    exit(EXIT_FAILURE);
  }
  return memory;
}

gsc_tensor tensor_make(int32_t dtype, int64_t count) {
  const gsc_tensor t = GSC_TENSOR_INIT(allocate((size_t)count, dtype == GSC_FP16 ? 2 : 4), count, dtype);
  return t;
}

void tensor_free(gsc_tensor *t) {
  free(t->data);
  t->data = NULL;
  t->count = 0;
}

gsc_tensor tensor_first(const gsc_tensor *t, int64_t count) {
  gsc_tensor view = *t;
  view.count = count;
  return view;
}

gsc_tensor tensor_of(float *values, int64_t count) {
  const gsc_tensor t = GSC_TENSOR_INIT(values, count, GSC_FP32);
  return t;
}

void tensor_cast(const device *d, gsc_tensor src, gsc_tensor dst) {
  CALL(d, ops_cast(d->context, &src, &dst, 1, NULL), "cast");
}
