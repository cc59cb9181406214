/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * One training run: a network, an optimizer and a scaler, from initial weights to the accuracy on the test images. Read
 * training.c to see how the library is used.
 */
#include "dataset.h"
#include "device.h"

/** How a network is trained. */
typedef enum arm { ARM_FP32 = 0, ARM_FP16 = 1, ARM_SCALED = 2, ARM_COUNT = 3 } arm;
extern const char *const arm_names[ARM_COUNT];

/** The recipe, the same for every arm. */
enum { TRAIN_IMAGES = 1437, BATCH_ROWS = 64, GROWTH_INTERVAL = 50, FLUSHED_SAMPLES = 20 };
#define LEARNING_RATE 2e-3

typedef struct run_settings {
  arm arm;
  /** Factor on the loss. */
  float magnitude;
  /** Decides the split, the initial weights and the batches. */
  uint64_t seed;
  int steps;
  /** Used by ARM_SCALED only. */
  float initial_scale;
  /** Formats of the masters, GSC_MASTER_*, and of the moments, GSC_STATE_*. */
  int32_t master_format, state_format;
} run_settings;

typedef struct run_result {
  /** On the test images, 0 ... 1. */
  double accuracy;
  /** Share of the weight gradients that were stored as zero and should not have been. */
  double flushed;
  /** The same at the first step alone. */
  double flushed_first;
  /** Steps that were skipped because of an overflow. */
  int64_t skipped;
  /** Of these, at the beginning in a row. */
  int64_t skipped_first;
  float final_scale;
  /** Updates that the scaler has recorded. */
  int64_t history_count;
} run_result;

void run_training(const device *d, const dataset *all, const run_settings *settings, run_result *out);
