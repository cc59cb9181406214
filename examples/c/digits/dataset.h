/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The handwritten digits: 8 x 8 pixels and a class each. See examples/data/README.md for where they come from. */
#include <stdint.h>

#include "random.h"

enum { DIGITS_PIXELS = 64, DIGITS_CLASSES = 10 };

/** `count` images: pixels in 0 ... 1, DIGITS_PIXELS each, and labels in 0 ... 9. */
typedef struct dataset {
  int count;
  float *pixels;
  int *labels;
} dataset;

/** Reads lines of 64 integers in 0 ... 16 and a label, separated by commas. 1, or 0 with a sentence on stderr. */
int dataset_read(dataset *out, const char *path);
/** Copies a random `train_count` of the images to `train` and the others to `test`. */
void dataset_split(const dataset *all, int train_count, uint64_t seed, dataset *train, dataset *test);
/** Copies `rows` random images, drawn with replacement. */
void dataset_batch(const dataset *from, random_source *random, int rows, float *pixels, int *labels);
void dataset_free(dataset *d);
