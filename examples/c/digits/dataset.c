/* SPDX-License-Identifier: Apache-2.0 */
/* Reading, splitting and sampling the digits. */
#include "dataset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

enum { LINE_SIZE = 512, MOST_IMAGES = 10000 };

static dataset dataset_make(int count) {
  dataset d;
  d.count = count;
  d.pixels = allocate((size_t)count * DIGITS_PIXELS, sizeof *d.pixels);
  d.labels = allocate((size_t)count, sizeof *d.labels);
  return d;
}

static void copy_image(const dataset *from, int index, float *pixels, int *label) {
  memcpy(pixels, from->pixels + (size_t)index * DIGITS_PIXELS, DIGITS_PIXELS * sizeof *pixels);
  *label = from->labels[index];
}

static int parse_line(const char *line, float *pixels, int *label) {
  char *end;
  for (int i = 0; i < DIGITS_PIXELS; i++, line = end + 1) {
    const long value = strtol(line, &end, 10);
    if (end == line || value < 0 || value > 16 || *end != ',') return 0;
    pixels[i] = (float)value / 16.0f;
  }
  const long digit = strtol(line, &end, 10);
  *label = (int)digit;
  return end != line && digit >= 0 && digit < DIGITS_CLASSES && (*end == '\n' || *end == '\r' || *end == '\0');
}

int dataset_read(dataset *out, const char *path) {
  FILE *file = fopen(path, "r");
  if (file == NULL) {
    fprintf(stderr, "digits: cannot read %s: %s\n", path, strerror(errno));
    return 0;
  }
  char line[LINE_SIZE];
  int valid = 1;
  dataset d = dataset_make(MOST_IMAGES);
  d.count = 0;
  while (valid && fgets(line, sizeof line, file) != NULL) {
    valid = d.count < MOST_IMAGES && parse_line(line, d.pixels + (size_t)d.count * DIGITS_PIXELS, d.labels + d.count);
    if (valid) d.count++;
  }
  fclose(file);
  if (!valid || d.count == 0) {
    fprintf(stderr, "digits: %s:%d: not 64 pixels of 0..16 and a digit\n", path, d.count + 1);
    dataset_free(&d);
    return 0;
  }
  *out = d;
  return 1;
}

void dataset_split(const dataset *all, int train_count, uint64_t seed, dataset *train, dataset *test) {
  random_source random = random_make(seed, 0);
  int *order = allocate((size_t)all->count, sizeof *order);
  random_permutation(&random, order, all->count);
  *train = dataset_make(train_count);
  *test = dataset_make(all->count - train_count);
  for (int i = 0; i < all->count; i++) {
    const dataset *to = i < train_count ? train : test;
    const int at = i < train_count ? i : i - train_count;
    copy_image(all, order[i], to->pixels + (size_t)at * DIGITS_PIXELS, to->labels + at);
  }
  free(order);
}

void dataset_batch(const dataset *from, random_source *random, int rows, float *pixels, int *labels) {
  for (int i = 0; i < rows; i++) {
    copy_image(from, random_below(random, from->count), pixels + (size_t)i * DIGITS_PIXELS, labels + i);
  }
}

void dataset_free(dataset *d) {
  free(d->pixels);
  free(d->labels);
  memset(d, 0, sizeof *d);
}
