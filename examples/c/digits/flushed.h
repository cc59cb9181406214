/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Measures how many weight gradients a 16-bit backward pass loses: those that it stores as zero although an fp32 backward
 * pass of the same weights and the same images finds something else.
 */
#include "mlp.h"

typedef struct flushed_meter {
  /** A network in fp32 that takes over the 16-bit weights at each sample. */
  mlp reference;
  float *gradient;
  long long nonzero;
  long long flushed;
  /** The same of the first sample alone. */
  double first_share;
  int samples;
} flushed_meter;

void flushed_create(flushed_meter *f, const device *d, int max_rows);
void flushed_destroy(flushed_meter *f);
/** Counts over the matrices of `m`, which is fp16 and has just run its backward pass on this batch. */
void flushed_sample(flushed_meter *f, const mlp *m, const float *pixels, const int *labels, int rows, float magnitude);
/** Flushed over non-zero in all samples; 0 without any. */
double flushed_share(const flushed_meter *f);
