/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A run from beginning to end, and its results. */
#include "trainer.h"

typedef struct run_result {
  recipe recipe;
  /** Mean loss of the first step, of the last tenth of the steps, and on the text held out. */
  double first_loss, last_loss, held_out;
  /** The scale of the last step. */
  float scale;
  int64_t skipped;
  double tokens_per_second;
} run_result;

/** From the trainer's current step to step `until`. `lines`: how many to print, with
 * the mean loss since the line before; 0: none. */
void run_training(trainer *t, const text *source, int until, int lines, run_result *out);
