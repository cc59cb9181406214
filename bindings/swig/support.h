/* SPDX-License-Identifier: Apache-2.0
 *
 * C helpers behind gradscaler.i: what the C header expresses with arrays and output pointers, as small objects that
 * every language can hold. Functions that return a value record their status in gsc_pending; the `out` typemaps of
 * the language file take it from there and raise. Knows no language.
 */
#ifndef GRADSCALER_SWIG_SUPPORT_H
#define GRADSCALER_SWIG_SUPPORT_H
#include <stdlib.h>
#include <string.h>

#include "gradscaler/gradscaler.h"
#include "gradscaler/vulkan.h"

#if defined(_MSC_VER)
#define GSC_SWIG_THREAD_LOCAL __declspec(thread)
#else
#define GSC_SWIG_THREAD_LOCAL _Thread_local
#endif

/* Status of the call in progress on this thread; always GSC_OK between calls. */
static GSC_SWIG_THREAD_LOCAL gsc_status gsc_pending = GSC_OK;
/* Message that belongs to it if the error was found here; NULL: the library's own. */
static GSC_SWIG_THREAD_LOCAL const char *gsc_pending_message = NULL;

static int gsc_record(gsc_status status) {
  gsc_pending = status;
  return status == GSC_OK;
}

static void gsc_record_error(gsc_status status, const char *message) {
  gsc_pending = status;
  gsc_pending_message = message;
}

/* Returns and clears the recorded status. If it is not GSC_OK, *message is this thread's message and *details its parts,
 * which are empty for failures that were found here. */
static gsc_status gsc_take_pending(const char **message, gsc_error *details) {
  const gsc_error unknown = {(uint32_t)sizeof *details, gsc_pending, "", "", "", -1, -1};
  const gsc_status status = gsc_pending;
  *details = unknown;
  if (status != GSC_OK && !gsc_pending_message) {
    *message = gsc_error_get_message();
    gsc_error_get_last(details);
  } else if (status != GSC_OK) {
    *message = gsc_pending_message;
  }
  gsc_pending = GSC_OK;
  gsc_pending_message = NULL;
  return status;
}

/* Zeroed memory; on failure NULL, recorded. */
static void *gsc_swig_allocate(int64_t size) {
  void *memory = calloc(1, size > 0 ? (size_t)size : 1);
  if (!memory) gsc_record_error(GSC_ERROR_OUT_OF_MEMORY, "out of memory");
  return memory;
}

/* Tensors on their way into a list or a stateless operation, with names, which follow `items`. */
typedef struct gsc_tensor_array {
  int64_t count;
  int64_t capacity;
  char **names;
  gsc_tensor items[];
} gsc_tensor_array;

static void gsc_tensor_array_free(gsc_tensor_array *array) {
  if (!array) return;
  for (int64_t i = 0; i < array->count; ++i) free(array->names[i]);
  free(array);
}

static gsc_tensor_array *gsc_tensor_array_new(int64_t capacity) {
  gsc_tensor_array *array;
  if (capacity < 1) capacity = 1;
  array = (gsc_tensor_array *)gsc_swig_allocate((int64_t)sizeof *array +
                                                capacity * (int64_t)(sizeof *array->items + sizeof *array->names));
  if (!array) return NULL;
  array->capacity = capacity;
  array->names = (char **)(array->items + capacity);
  return array;
}

static void gsc_tensor_array_add(gsc_tensor_array *array, void *data, int64_t count, int32_t dtype, const char *name) {
  char *copy = NULL;
  if (array->count == array->capacity) {
    gsc_record_error(GSC_ERROR_INVALID_ARGUMENT, "the tensor array is full");
    return;
  }
  if (name) {
    const size_t size = strlen(name) + 1;
    copy = (char *)gsc_swig_allocate((int64_t)size);
    if (!copy) return;
    memcpy(copy, name, size);
  }
  array->names[array->count] = copy;
  array->items[array->count].data = data;
  array->items[array->count].count = count;
  array->items[array->count].dtype = dtype;
  ++array->count;
}

/* The dtype of the scales of codes; 0 if they have none. */
static int32_t gsc_scale_dtype_of(int32_t dtype) {
  switch (dtype) {
    case GSC_FP8_E4M3:
    case GSC_UFP16_E6M10:
      return GSC_FP8_E8M0;
    case GSC_UINT8_LOG:
      return GSC_INT16;
    case GSC_INT8_SOFTSIGN:
    case GSC_UINT8_SQRT:
      return GSC_FP16;
    default:
      return 0;
  }
}

static void gsc_tensor_array_set_scales(gsc_tensor_array *array, void *scales) {
  gsc_tensor *last = &array->items[array->count - 1];
  last->scale_dtype = gsc_scale_dtype_of(last->dtype);
  last->scale = last->count > 0 ? scales : NULL;
  last->scale_block_rows = 1;
  last->scale_block_columns = 32;
}

static const gsc_tensor *gsc_tensor_items(const gsc_tensor_array *array) { return array ? array->items : NULL; }
static int64_t gsc_tensor_items_count(const gsc_tensor_array *array) { return array ? array->count : 0; }

static gsc_status gsc_lengths_differ(void) {
  gsc_record_error(GSC_ERROR_INVALID_ARGUMENT, "src and dst have different numbers of tensors");
  return gsc_pending;
}

static gsc_status gsc_rebind(gsc_tensor_list *list, const gsc_tensor_array *array, gsc_stream stream) {
  const int64_t count = gsc_tensor_items_count(array);
  void **data = (void **)calloc(count > 0 ? (size_t)count : 1, sizeof *data);
  if (!data) {
    gsc_record_error(GSC_ERROR_OUT_OF_MEMORY, "out of memory");
    return gsc_pending;
  }
  for (int64_t i = 0; i < count; ++i) data[i] = array->items[i].data;
  const gsc_status status = gsc_tensor_list_set_pointers(list, data, count, stream);
  free(data);
  return status;
}

/* Numbers on their way into or out of a call, one per tensor. */
typedef struct gsc_numbers {
  int64_t count;
  int64_t items[];
} gsc_numbers;

static gsc_numbers *gsc_numbers_new(int64_t count) {
  gsc_numbers *numbers;
  if (count < 0) count = 0;
  numbers = (gsc_numbers *)gsc_swig_allocate((int64_t)sizeof *numbers + count * (int64_t)sizeof *numbers->items);
  if (numbers) numbers->count = count;
  return numbers;
}

static int64_t *gsc_numbers_at(gsc_numbers *numbers, int64_t index) {
  if (index >= 0 && index < numbers->count) return &numbers->items[index];
  gsc_record_error(GSC_ERROR_INVALID_ARGUMENT, "there is no number of that index");
  return NULL;
}

/* Those that are not 0 are present; NULL: all. */
static gsc_status gsc_mark_present(gsc_tensor_list *list, const gsc_numbers *present, gsc_stream stream) {
  int64_t count = present ? present->count : 0;
  if (!present) {
    const gsc_status status = gsc_tensor_list_get_count(list, &count);
    return status == GSC_OK ? gsc_tensor_list_set_present(list, NULL, NULL, count, stream) : status;
  }
  uint8_t *mask = (uint8_t *)gsc_swig_allocate(count);
  if (!mask) return gsc_pending;
  for (int64_t i = 0; i < count; ++i) mask[i] = present->items[i] != 0;
  const gsc_status status = gsc_tensor_list_set_present(list, mask, NULL, count, stream);
  free(mask);
  return status;
}

/* Steps of each tensor; on failure NULL, recorded. */
static gsc_numbers *gsc_tensor_steps_read(const gsc_optimizer *optimizer, gsc_stream stream) {
  gsc_tensor_list *grads = NULL;
  int64_t count = 0;
  if (!gsc_record(gsc_optimizer_get_grads(optimizer, &grads)) || !gsc_record(gsc_tensor_list_get_count(grads, &count)))
    return NULL;
  gsc_numbers *numbers = gsc_numbers_new(count);
  if (numbers && gsc_record(gsc_optimizer_get_tensor_steps_sync(optimizer, numbers->items, count, stream)))
    return numbers;
  free(numbers);
  return NULL;
}

/* A scaler's options; on failure recorded, and zeroes. */
static gsc_scaler_options gsc_read_options(const gsc_scaler *scaler) {
  gsc_scaler_options options = {0};
  options.struct_size = (uint32_t)sizeof options;
  gsc_record(gsc_scaler_get_options(scaler, &options));
  return options;
}

/* Unless reading them failed. */
static gsc_status gsc_write_options(gsc_scaler *scaler, const gsc_scaler_options *options, gsc_stream stream) {
  return gsc_pending != GSC_OK ? gsc_pending : gsc_scaler_set_options(scaler, options, stream);
}

/* A copy of a scaler's history. */
typedef struct gsc_history {
  int64_t count;
  gsc_history_entry entries[];
} gsc_history;

static gsc_history *gsc_history_read(gsc_scaler *scaler, gsc_stream stream) {
  int64_t available = 0;
  if (!gsc_record(gsc_scaler_get_history_sync(scaler, NULL, 0, &available, stream))) return NULL;
  gsc_history *history =
      (gsc_history *)gsc_swig_allocate((int64_t)sizeof *history + available * (int64_t)sizeof *history->entries);
  if (!history) return NULL;
  if (gsc_record(gsc_scaler_get_history_sync(scaler, history->entries, available, &history->count, stream))) {
    return history;
  }
  free(history);
  return NULL;
}

static gsc_history_entry gsc_history_at(const gsc_history *history, int64_t index) {
  gsc_history_entry none = {0};
  if (index >= 0 && index < history->count) return history->entries[index];
  gsc_record_error(GSC_ERROR_INVALID_ARGUMENT, "index is outside of the history");
  return none;
}

/* What gsc_tensor_list_diagnose_sync found in each tensor of a list: `histograms` follow `items`. */
typedef struct gsc_diagnoses {
  int64_t count;
  int64_t *histograms;
  gsc_tensor_diagnosis items[];
} gsc_diagnoses;

/* A loss scale and the share of values that it still loses. */
typedef struct gsc_recommendation {
  float scale;
  double flushed;
} gsc_recommendation;

static gsc_diagnoses *gsc_diagnoses_read(const gsc_tensor_list *list, gsc_stream stream) {
  int64_t count = 0;
  if (!gsc_record(gsc_tensor_list_get_count(list, &count))) return NULL;
  const int64_t each = (int64_t)(sizeof(gsc_tensor_diagnosis) + GSC_EXPONENT_BINS * sizeof(int64_t));
  gsc_diagnoses *diagnoses = (gsc_diagnoses *)gsc_swig_allocate((int64_t)sizeof *diagnoses + count * each);
  if (!diagnoses) return NULL;
  diagnoses->count = count;
  diagnoses->histograms = (int64_t *)(diagnoses->items + count);
  if (gsc_record(gsc_tensor_list_diagnose_sync(list, diagnoses->items, diagnoses->histograms, count, stream))) {
    return diagnoses;
  }
  free(diagnoses);
  return NULL;
}

static int gsc_diagnoses_check(const gsc_diagnoses *diagnoses, int64_t index) {
  if (index >= 0 && index < diagnoses->count) return 1;
  gsc_record_error(GSC_ERROR_INVALID_ARGUMENT, "index is outside of the list");
  return 0;
}

static gsc_tensor_diagnosis gsc_diagnoses_at(const gsc_diagnoses *diagnoses, int64_t index) {
  gsc_tensor_diagnosis none = {0};
  return gsc_diagnoses_check(diagnoses, index) ? diagnoses->items[index] : none;
}

static int64_t gsc_diagnoses_bin(const gsc_diagnoses *diagnoses, int64_t index, int32_t bin) {
  if (!gsc_diagnoses_check(diagnoses, index)) return 0;
  if (bin >= 0 && bin < GSC_EXPONENT_BINS) return diagnoses->histograms[index * GSC_EXPONENT_BINS + bin];
  gsc_record_error(GSC_ERROR_INVALID_ARGUMENT, "bin is outside of the histogram");
  return 0;
}

/* Over all tensors together. */
static gsc_recommendation gsc_diagnoses_recommend(const gsc_diagnoses *diagnoses, float current_scale, int32_t dtype) {
  gsc_recommendation result = {0};
  int64_t sum[GSC_EXPONENT_BINS] = {0};
  for (int64_t i = 0; i < diagnoses->count * GSC_EXPONENT_BINS; ++i) {
    sum[i % GSC_EXPONENT_BINS] += diagnoses->histograms[i];
  }
  gsc_record(
      gsc_histogram_recommend_scale(sum, GSC_EXPONENT_BINS, current_scale, dtype, &result.scale, &result.flushed));
  return result;
}

#endif /* GRADSCALER_SWIG_SUPPORT_H */
