/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a small GPT on text, in plain C. By default all three arms, at a loss averaged over the tokens of an update and
 * over a million elements, with a table; with --arm a single run, which can be saved and resumed.
 *
 *     gpt [options] FILE...                            see usage() below
 *
 * The library is loaded at run time, not linked. trainer.c uses it.
 */
#include <gradscaler/loader.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

/* What a batch of images, or a large batch of text, averages over. */
#define MILLION 1e6

typedef struct options {
  recipe recipe;
  const char *library, *arm, *save, *resume, *state, *master;
  int stop_after, lines, check;
  const char *const *files;
  int file_count;
} options;

static int usage(void) {
  fprintf(stderr,
          "usage: gpt [options] FILE...\n"
          "  --library FILE     the library to load; without it $GRADSCALER_LIBRARY, then the system's search\n"
          "  --layers, --width, --context, --steps, --seed N\n"
          "  --lines N          with --arm: how often to print the loss, 10 times without it\n"
          "  --check            fail if scaling does not do what it should\n"
          "  --arm NAME         a single run: fp32, fp16 or scaled\n"
          "  --save FILE        with --arm: a checkpoint at the end\n"
          "  --resume FILE      with --arm: begin with a checkpoint\n"
          "  --stop-after N     with --arm: end after so many steps of the whole run\n"
          "  --state NAME       with --arm: AdamW's moments: full, 16bit or 8bit\n"
          "  --master NAME      with --arm fp16 or scaled: fp32, split16, split8 or stochastic\n");
  return EXIT_FAILURE;
}

/* Where the value of an option goes: one of the two, or none for an unknown option. */
typedef struct destination {
  const char **text;
  int32_t *number;
} destination;

static destination option(options *o, const char *name, int32_t *seed) {
  recipe *r = &o->recipe;
  const struct {
    const char *name;
    destination to;
  } known[] = {
      {"--library", {&o->library, NULL}},
      {"--arm", {&o->arm, NULL}},
      {"--save", {&o->save, NULL}},
      {"--resume", {&o->resume, NULL}},
      {"--state", {&o->state, NULL}},
      {"--master", {&o->master, NULL}},
      {"--layers", {NULL, &r->shape.layers}},
      {"--width", {NULL, &r->shape.width}},
      {"--context", {NULL, &r->shape.context}},
      {"--steps", {NULL, &r->steps}},
      {"--stop-after", {NULL, &o->stop_after}},
      {"--seed", {NULL, seed}},
      {"--lines", {NULL, &o->lines}},
  };
  const destination none = {NULL, NULL};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(name, known[i].name) == 0) return known[i].to;
  }
  return none;
}

static int parse(int argc, char **argv, options *o) {
  int32_t seed = 0;
  int i = 1;
  memset(o, 0, sizeof *o);
  o->recipe.shape = (gpt_shape){4, 128, 4, 64};
  o->recipe.batch = 8;
  o->lines = 10;
  o->recipe.accumulate = 2;
  o->recipe.steps = 200;
  for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
    if (strcmp(argv[i], "--check") == 0) {
      o->check = 1;
      continue;
    }
    const destination to = option(o, argv[i], &seed);
    if (++i == argc) return 0;
    if (to.text != NULL)
      *to.text = argv[i];
    else if (to.number != NULL)
      *to.number = (int32_t)atoi(argv[i]);
    else
      return 0;
  }
  o->recipe.seed = (uint64_t)seed;
  o->files = (const char *const *)argv + i;
  o->file_count = argc - i;
  const recipe *r = &o->recipe;
  const int good = r->shape.layers > 0 && r->shape.layers <= MAX_LAYERS && r->shape.context > 1 && r->shape.width > 0 &&
                   r->shape.width % r->shape.heads == 0 && r->steps > 0;
  if (!good)
    fprintf(stderr, "gpt: a size is out of range: %d divides width, and there are at most %d layers\n",
            (int)r->shape.heads, MAX_LAYERS);
  const int is_single = o->save != NULL || o->resume != NULL || o->stop_after || o->state != NULL || o->master != NULL;
  return good && o->file_count > 0 && (o->arm != NULL || !is_single);
}

static double tokens_of(const recipe *r) { return (double)r->batch * r->accumulate * r->shape.context; }

/* The number of a name among `count`; -1 if it is none of them, 0 if there is no name. */
static int32_t number_of(const char *name, const char *const *names, int32_t count) {
  for (int32_t i = 0; name != NULL && i < count; i++) {
    if (strcmp(name, names[i]) == 0) return i;
  }
  return name == NULL ? 0 : -1;
}

static int formats(const options *o, recipe *r) {
  static const char *const states[] = {"full", "16bit", "8bit"};
  static const char *const masters[] = {"fp32", "split16", "split8", "stochastic"};
  r->state_format = number_of(o->state, states, 3);
  r->master_format = number_of(o->master, masters, 4);
  return r->state_format >= 0 && r->master_format >= 0 && (r->arm != ARM_FP32 || r->master_format == GSC_MASTER_NONE);
}

static int single_run(const device *d, const text *source, const options *o) {
  recipe r = o->recipe;
  trainer t;
  run_result result;
  r.arm = strcmp(o->arm, "fp32") == 0 ? ARM_FP32 : strcmp(o->arm, "fp16") == 0 ? ARM_FP16 : ARM_SCALED;
  if ((r.arm == ARM_SCALED && strcmp(o->arm, "scaled") != 0) || !formats(o, &r)) {
    usage();
    return 0;
  }
  r.mean_over = tokens_of(&r);
  trainer_create(&t, d, &r);
  int good = o->resume == NULL || trainer_load(&t, o->resume);
  if (good) {
    run_training(&t, source, o->stop_after > 0 && o->stop_after < r.steps ? o->stop_after : r.steps, o->lines, &result);
    printf("held out: %.3f\n", result.held_out);
    good = o->save == NULL || trainer_save(&t, o->save);
  }
  trainer_destroy(&t);
  return good;
}

static void print_row(const run_result *r) {
  char text[32] = "-";
  if (r->recipe.arm == ARM_SCALED) snprintf(text, sizeof text, "2^%g", log2(r->scale));
  printf("%-9g  %-17s  %10.3f  %8.3f  %7lld  %6s  %8.0f\n", r->recipe.mean_over, arm_names[r->recipe.arm], r->last_loss,
         r->held_out, (long long)r->skipped, text, r->tokens_per_second);
  fflush(stdout);
}

static int holds(int condition, const char *claim) {
  if (!condition) fprintf(stderr, "gpt: does not hold: %s\n", claim);
  return condition;
}

static int check_runs(const run_result runs[2][ARM_COUNT]) {
  int good = 1;
  for (int k = 0; k < 2; k++) {
    const run_result *r = runs[k];
    good &= holds(r[ARM_FP32].last_loss < r[ARM_FP32].first_loss - 1.0, "fp32 learns");
    good &=
        holds(fabs(r[ARM_SCALED].last_loss - r[ARM_FP32].last_loss) < 0.03, "fp16 with scaling learns as fp32 does");
  }
  good &= holds(fabs(runs[0][ARM_FP16].last_loss - runs[0][ARM_FP32].last_loss) < 0.03,
                "averaged over an update, fp16 learns as fp32 does without scaling, too");
  good &= holds(!(runs[1][ARM_FP16].last_loss < runs[1][ARM_FP32].last_loss + 0.3),
                "averaged over a million, fp16 without scaling does not");
  return good;
}

static int experiment(const device *d, const text *source, const options *o) {
  run_result runs[2][ARM_COUNT];
  recipe r = o->recipe;
  printf("A GPT of %d layers, width %d, on %lld bytes; %d updates of %g tokens.\n\n", (int)r.shape.layers,
         (int)r.shape.width, (long long)source->count, (int)r.steps, tokens_of(&r));
  printf("%-9s  %-17s  %10s  %8s  %7s  %6s  %8s\n", "mean over", "arm", "train loss", "held out", "skipped", "scale",
         "tokens/s");
  for (int k = 0; k < 2; k++) {
    r.mean_over = k == 0 ? tokens_of(&r) : MILLION;
    for (int i = 0; i < ARM_COUNT; i++) {
      trainer t;
      r.arm = (arm)i;
      trainer_create(&t, d, &r);
      run_training(&t, source, r.steps, 0, &runs[k][i]);
      print_row(&runs[k][i]);
      trainer_destroy(&t);
    }
  }
  return !o->check || check_runs((const run_result(*)[ARM_COUNT])runs);
}

int main(int argc, char **argv) {
  options o;
  text source;
  gsc_library library;
  device d;
  char message[4096];
  if (!parse(argc, argv, &o)) return usage();
  if (!text_read(&source, o.files, o.file_count, o.recipe.shape.context)) return EXIT_FAILURE;
  int good = gsc_library_open(&library, o.library, message, sizeof message);
  if (good) {
    device_open(&d, library.api, 1);
    good = o.arm != NULL ? single_run(&d, &source, &o) : experiment(&d, &source, &o);
    device_close(&d);
    gsc_library_close(&library);
  } else {
    fprintf(stderr, "gpt: %s\n", message);
  }
  text_free(&source);
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
