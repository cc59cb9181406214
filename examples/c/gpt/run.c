/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives a trainer and writes down what happens.
 */
#include "run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static float scale_of(trainer *t) {
  float scale = 0.0f;
  require(t->device, t->gsc->scaler_get_scale_sync(t->scaler, &scale, NULL), "scale");
  return scale;
}

static int64_t skipped_of(trainer *t) {
  int64_t skipped = 0;
  require(t->device, t->gsc->optimizer_get_steps_sync(t->optimizer, NULL, &skipped, NULL), "steps");
  return skipped;
}

void run_training(trainer *t, const text *source, int until, int verbose, run_result *out) {
  const recipe *r = &t->recipe;
  const int first = t->step, every = r->steps >= 10 ? r->steps / 10 : 1;
  const double tokens = (double)r->batch * r->shape.context * r->accumulate;
  const clock_t start = clock();
  memset(out, 0, sizeof *out);
  out->recipe = *r;
  out->losses = allocate((size_t)r->steps, sizeof *out->losses);
  out->scales = allocate((size_t)r->steps, sizeof *out->scales);
  out->overflows = allocate((size_t)r->steps, 1);
  int64_t skipped = skipped_of(t);
  for (int step = first; step < until; step++) {
    out->scales[step] = scale_of(t);
    out->losses[step] = trainer_step(t, source);
    out->overflows[step] = skipped_of(t) > skipped;
    skipped = skipped_of(t);
    if (step >= r->steps - every) out->last_loss += out->losses[step] / every;
    /* Time of the processor: the library and the model run in this thread. */
    out->tokens_per_second = tokens * (step + 1 - first) * CLOCKS_PER_SEC / (double)(clock() - start);
    if (!verbose || ((step + 1) % every != 0 && step + 1 != until)) continue;
    printf("step %4d  loss %6.3f  %6.0f tokens/s  scale %-8g  skipped %lld\n", step + 1, out->losses[step],
           out->tokens_per_second, (double)out->scales[step], (long long)skipped);
    fflush(stdout);
  }
  out->skipped = skipped;
  out->held_out = trainer_evaluate(t, source);
}

void run_free(run_result *r) {
  free(r->losses);
  free(r->scales);
  free(r->overflows);
  memset(r, 0, sizeof *r);
}
