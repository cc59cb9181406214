/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The whole comparison: every arm at every loss magnitude with several seeds, smaller optimizer state, and one run that
 * starts with a scale that is far too large.
 */
#include "training.h"

enum { MOST_MAGNITUDES = 8, MOST_SEEDS = 8, FORMAT_COUNT = 5 };
/** First scale of the arm that scales: PyTorch's default. */
#define USUAL_SCALE 65536.0f
/** First scale of the run that has to find its scale: 2^30. */
#define EXCESSIVE_SCALE 1073741824.0f

/** The runs of one arm at one magnitude. */
typedef struct cell {
  run_result runs[MOST_SEEDS];
  /** Over the seeds. */
  double accuracy_mean, accuracy_min, accuracy_max;
  double flushed_mean, flushed_first_mean;
  int64_t skipped_total;
  float scale_min, scale_max;
} cell;

/** Masters and moments in fewer bytes. */
typedef struct format {
  const char *name;
  int32_t masters, state;
} format;
extern const format formats[FORMAT_COUNT];

typedef struct experiment {
  int steps;
  int seeds;
  int magnitude_count;
  float magnitudes[MOST_MAGNITUDES];
  cell cells[MOST_MAGNITUDES][ARM_COUNT];
  /** ARM_SCALED in each of `formats` at magnitude 1. */
  cell with_format[FORMAT_COUNT];
  /** The run from EXCESSIVE_SCALE at magnitude 1. */
  run_result settling;
} experiment;

/** What to run; `quick` is a small part that takes a second. */
void experiment_plan(experiment *e, int quick);
/** Runs it all and fills the results in. */
void experiment_run(experiment *e, const device *d, const dataset *all);
/** Prints the table: report.c. */
void experiment_print(const experiment *e);
/**
 * Checks that scaled fp16 is as good as fp32 everywhere, in every format too, and loses no gradients, that unscaled fp16
 * fails at 1e-5, and that the run from an excessive scale skips, settles and learns. Prints what fails to stderr and returns the count.
 */
int experiment_check(const experiment *e);
