/* SPDX-License-Identifier: Apache-2.0 */
/* The table on stdout. Numbers are those of the runs; nothing is smoothed or left out. */
#include <math.h>
#include <stdio.h>

#include "experiment.h"

static void print_row(const experiment *e, int m, int a) {
  const cell *c = &e->cells[m][a];
  char magnitude[16] = "", flushed[16] = "-", first[16] = "-", skipped[16] = "-", scale[32] = "-";
  if (a == 0) snprintf(magnitude, sizeof magnitude, "%g", (double)e->magnitudes[m]);
  if (a != ARM_FP32) {
    snprintf(flushed, sizeof flushed, "%.1f %%", 100.0 * c->flushed_mean);
    snprintf(first, sizeof first, "%.1f %%", 100.0 * c->flushed_first_mean);
  }
  if (a == ARM_SCALED) {
    const double low = log2((double)c->scale_min), high = log2((double)c->scale_max);
    snprintf(skipped, sizeof skipped, "%.1f", (double)c->skipped_total / e->seeds);
    if (low == high) {
      snprintf(scale, sizeof scale, "2^%g", low);
    } else {
      snprintf(scale, sizeof scale, "2^%g..2^%g", low, high);
    }
  }
  printf("%-7s  %-17s  %6.1f %%  %5.1f..%-5.1f  %8s  %8s  %7s  %s\n", magnitude, arm_names[a], 100.0 * c->accuracy_mean,
         100.0 * c->accuracy_min, 100.0 * c->accuracy_max, flushed, first, skipped, scale);
}

static void print_formats(const experiment *e) {
  printf("\n%s at loss x 1 with smaller optimizer state:\n", arm_names[ARM_SCALED]);
  for (int f = 0; f < FORMAT_COUNT; f++) {
    const cell *c = &e->with_format[f];
    printf("%-26s  %6.1f %%  %5.1f..%.1f\n", formats[f].name, 100.0 * c->accuracy_mean, 100.0 * c->accuracy_min,
           100.0 * c->accuracy_max);
  }
}

static void print_settling(const experiment *e) {
  const run_result *r = &e->settling;
  printf(
      "\nStarting at scale 2^30 (loss x 1): %lld of %d steps skipped, the first %lld in a row; final scale 2^%g; "
      "accuracy %.1f %%.\n",
      (long long)r->skipped, e->steps, (long long)r->skipped_first, log2((double)r->final_scale), 100.0 * r->accuracy);
}

/* Where scaling makes no difference is a result, too. */
static void print_as_good_as_fp32(const experiment *e, int a) {
  int found = 0;
  printf("%-17s  within one point of fp32 at loss x", arm_names[a]);
  for (int m = 0; m < e->magnitude_count; m++) {
    if (e->cells[m][a].accuracy_mean < e->cells[m][ARM_FP32].accuracy_mean - 0.01) continue;
    printf("%s %g", found ? "," : "", (double)e->magnitudes[m]);
    found = 1;
  }
  printf("%s\n", found ? "" : " (none)");
}

void experiment_print(const experiment *e) {
  printf("A 64-64-64-10 network on handwritten digits, %d steps of AdamW, %d seed%s.\n\n", e->steps, e->seeds,
         e->seeds == 1 ? "" : "s");
  printf("%-7s  %-17s  %8s  %12s  %8s  %8s  %7s  %s\n", "loss x", "arm", "accuracy", "over seeds", "flushed",
         "at first", "skipped", "final scale");
  for (int m = 0; m < e->magnitude_count; m++) {
    for (int a = 0; a < ARM_COUNT; a++) print_row(e, m, a);
  }
  printf("\n");
  print_as_good_as_fp32(e, ARM_FP16);
  print_as_good_as_fp32(e, ARM_SCALED);
  print_formats(e);
  print_settling(e);
  printf(
      "\nloss x    factor on the loss. A mean over N elements has it near 1/N: 1e-4 to 1e-6 stand for means over ten\n"
      "          thousand to a million elements, as in dense prediction.\n"
      "accuracy  on 360 test images: mean, then lowest and highest over the seeds. At 1e-6 the gradients are no\n"
      "          longer large against AdamW's eps of 1e-8, which slows fp32 and scaled fp16 alike.\n"
      "flushed   weight gradients stored as zero that an fp32 backward pass finds not to be zero, at %d steps of\n"
      "          each run, and at the first alone. In a run that diverges gradients grow, so fewer are flushed.\n"
      "skipped   steps of a run that were left out after an overflow\n",
      FLUSHED_SAMPLES);
}
