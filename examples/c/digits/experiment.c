/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs come one after the other: a run takes a fraction of a second. All arms of a seed see the same split, the same
 * initial weights and the same batches.
 */
#include "experiment.h"

#include <stdio.h>
#include <string.h>

static const float full_magnitudes[] = {1.0f, 1e-2f, 1e-4f, 3e-5f, 1e-5f, 1e-6f};
static const float quick_magnitudes[] = {1.0f, 1e-5f};
const format formats[FORMAT_COUNT] = {{"SPLIT16", GSC_MASTER_SPLIT16, GSC_STATE_FULL},
                                      {"SPLIT16, BITS16", GSC_MASTER_SPLIT16, GSC_STATE_BITS16},
                                      {"SPLIT16, BITS8", GSC_MASTER_SPLIT16, GSC_STATE_BITS8},
                                      {"SPLIT8, BITS8", GSC_MASTER_SPLIT8, GSC_STATE_BITS8},
                                      {"STOCHASTIC, BITS8", GSC_MASTER_STOCHASTIC, GSC_STATE_BITS8}};

void experiment_plan(experiment *e, int quick) {
  const float *magnitudes = quick ? quick_magnitudes : full_magnitudes;
  const size_t bytes = quick ? sizeof quick_magnitudes : sizeof full_magnitudes;
  memset(e, 0, sizeof *e);
  e->steps = quick ? 200 : 500;
  e->seeds = quick ? 1 : 5;
  e->magnitude_count = (int)(bytes / sizeof *magnitudes);
  memcpy(e->magnitudes, magnitudes, bytes);
}

static void summarise(cell *c, int seeds) {
  c->accuracy_min = c->accuracy_max = c->runs[0].accuracy;
  c->scale_min = c->scale_max = c->runs[0].final_scale;
  for (int i = 0; i < seeds; i++) {
    const run_result *r = &c->runs[i];
    c->accuracy_mean += r->accuracy / seeds;
    c->flushed_mean += r->flushed / seeds;
    c->flushed_first_mean += r->flushed_first / seeds;
    c->skipped_total += r->skipped;
    if (r->accuracy < c->accuracy_min) c->accuracy_min = r->accuracy;
    if (r->accuracy > c->accuracy_max) c->accuracy_max = r->accuracy;
    if (r->final_scale < c->scale_min) c->scale_min = r->final_scale;
    if (r->final_scale > c->scale_max) c->scale_max = r->final_scale;
  }
}

static void run_seeds(const experiment *e, const device *d, const dataset *all, run_settings s, cell *out) {
  for (int seed = 0; seed < e->seeds; seed++) {
    s.seed = (uint64_t)seed;
    run_training(d, all, &s, &out->runs[seed]);
  }
  summarise(out, e->seeds);
}

void experiment_run(experiment *e, const device *d, const dataset *all) {
  run_settings s = {ARM_SCALED, 1.0f, 0, e->steps, USUAL_SCALE, GSC_MASTER_NONE, GSC_STATE_FULL};
  for (int m = 0; m < e->magnitude_count; m++) {
    s.magnitude = e->magnitudes[m];
    for (int a = 0; a < ARM_COUNT; a++) {
      s.arm = (arm)a;
      run_seeds(e, d, all, s, &e->cells[m][a]);
    }
  }
  s.magnitude = 1.0f;
  for (int f = 0; f < FORMAT_COUNT; f++) {
    s.master_format = formats[f].masters;
    s.state_format = formats[f].state;
    run_seeds(e, d, all, s, &e->with_format[f]);
  }
  const run_settings excessive = {ARM_SCALED, 1.0f, 0, e->steps, EXCESSIVE_SCALE, GSC_MASTER_NONE, GSC_STATE_FULL};
  run_training(d, all, &excessive, &e->settling);
}

static int complain_unless(int holds, const char *claim) {
  if (!holds) fprintf(stderr, "digits: does not hold: %s\n", claim);
  return !holds;
}

int experiment_check(const experiment *e) {
  int complaints = 0, compared = 0;
  for (int m = 0; m < e->magnitude_count; m++) {
    const cell *fp32 = &e->cells[m][ARM_FP32], *fp16 = &e->cells[m][ARM_FP16], *scaled = &e->cells[m][ARM_SCALED];
    complaints += complain_unless(scaled->accuracy_mean > 0.9, "scaled fp16 reaches 90 %");
    complaints += complain_unless(scaled->accuracy_mean > fp32->accuracy_mean - 0.03, "scaled fp16 is as good as fp32");
    complaints += complain_unless(scaled->flushed_mean < 0.01, "scaled fp16 loses under 1 % of its gradients");
    if (e->magnitudes[m] != 1e-5f) continue;
    compared = 1;
    complaints += complain_unless(fp16->accuracy_mean < 0.5, "unscaled fp16 fails at 1e-5");
    complaints += complain_unless(fp16->flushed_mean > 0.05, "unscaled fp16 loses gradients at 1e-5");
  }
  for (int f = 0; f < FORMAT_COUNT; f++) {
    complaints += complain_unless(e->with_format[f].accuracy_mean > e->cells[0][ARM_FP32].accuracy_mean - 0.03,
                                  "every format of state is as good as fp32");
  }
  complaints += complain_unless(compared, "1e-5 was among the magnitudes");
  complaints += complain_unless(e->settling.accuracy > 0.9, "the run from 2^30 reaches 90 %");
  complaints += complain_unless(e->settling.skipped >= 5, "the run from 2^30 skips its first steps");
  complaints += complain_unless(e->settling.final_scale < EXCESSIVE_SCALE / 32, "the scale settles");
  complaints += complain_unless(e->settling.history_count == e->steps, "the history has every update");
  return complaints;
}
