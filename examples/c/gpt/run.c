/* SPDX-License-Identifier: Apache-2.0 */
/* Drives a trainer and records its losses, scale and speed. */
#include "run.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

void run_training(trainer *t, const text *source, int until, int lines, run_result *out) {
  const recipe *r = &t->recipe;
  const int first = t->step, every = r->steps >= 10 ? r->steps / 10 : 1;
  const int apart = lines > 0 && r->steps > lines ? r->steps / lines : 1;
  double sum = 0.0;
  int summed = 0;
  const double tokens = (double)r->batch * r->shape.context * r->accumulate;
  const clock_t start = clock();
  memset(out, 0, sizeof *out);
  out->recipe = *r;
  for (int step = first; step < until; step++) {
    CALL(t->device, scaler_get_scale_sync(t->scaler, &out->scale, NULL), "scale");
    const double loss = trainer_step(t, source);
    if (step == first) out->first_loss = loss;
    if (step >= r->steps - every) out->last_loss += loss / every;
    CALL(t->device, optimizer_get_steps_sync(t->optimizer, NULL, &out->skipped, NULL), "steps");
    /* Time of the processor: the library and the model run in this thread. */
    out->tokens_per_second = tokens * (step + 1 - first) * CLOCKS_PER_SEC / (double)(clock() - start);
    sum += loss;
    summed++;
    if (lines == 0 || ((step + 1) % apart != 0 && step + 1 != until)) continue;
    printf("step %4d  loss %6.3f  %6.0f tokens/s  scale %-8g  skipped %lld\n", step + 1, sum / summed,
           out->tokens_per_second, (double)out->scale, (long long)out->skipped);
    fflush(stdout);
    sum = 0.0;
    summed = 0;
  }
  out->held_out = trainer_evaluate(t, source);
}
