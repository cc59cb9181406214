/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPT_RUN_H
#define GPT_RUN_H
/*
 * A run from beginning to end with what it left behind, several of them as an experiment, and what is made of them.
 */
#include "trainer.h"

typedef struct run_result {
  recipe recipe;
  /** Of each step: mean loss, the scale that was used, 1 if it was skipped. Free with run_free. */
  double *losses;
  float *scales;
  unsigned char *overflows;
  /** Mean loss of the last tenth of the steps, and on the text held out. */
  double last_loss, held_out;
  int64_t skipped;
  double tokens_per_second;
} run_result;

/** From where the trainer stands to step `until`. `verbose`: a line for every tenth of the steps, on stdout. */
void run_training(trainer *t, const text *source, int until, int verbose, run_result *out);
void run_free(run_result *r);

/** Loss over the steps of the arms at the largest mean_over, and the scale. 1, or 0 with a sentence on stderr. */
int plot_runs(const run_result runs[ARM_COUNT], const char *path);

#endif
