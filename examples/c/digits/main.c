/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a small network on handwritten digits in fp32, in fp16, and in fp16 with loss scaling, with losses of several
 * magnitudes. Prints a table; writes results.csv and scale_history.csv.
 *
 *     digits --data digits.csv [--library libgradscaler.so.1] [--output FOLDER] [--state NAME] [--master NAME]
 *            [--quick] [--check]
 *
 * The library is loaded at run time, not linked. training.c uses it.
 */
#include <gradscaler/loader.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats.h"
#include "report.h"

typedef struct options {
  const char *data;
  const char *library;
  const char *output;
  const char *state;
  const char *master;
  int quick;
  int check;
} options;

static int usage(void) {
  fprintf(stderr,
          "usage: digits --data FILE [--library FILE] [--output FOLDER] [--state NAME] [--master NAME] [--quick]"
          " [--check]\n"
          "  --data     the digits as text: 64 pixels and a label in each line\n"
          "  --library  the library to load; without it $GRADSCALER_LIBRARY, then the system's search\n"
          "  --output   where results go; without it the current folder\n"
          "  --state    AdamW's moments in the fp16 arms: full, 16bit or 8bit\n"
          "  --master   their masters: fp32, split16, split8 or stochastic\n"
          "  --quick    one seed, few steps, two magnitudes\n"
          "  --check    fail if scaling does not do what it should\n");
  return EXIT_FAILURE;
}

static int parse(int argc, char **argv, options *o) {
  memset(o, 0, sizeof *o);
  o->output = ".";
  for (int i = 1; i < argc; i++) {
    const char **value = strcmp(argv[i], "--data") == 0      ? &o->data
                         : strcmp(argv[i], "--library") == 0 ? &o->library
                         : strcmp(argv[i], "--output") == 0  ? &o->output
                         : strcmp(argv[i], "--state") == 0   ? &o->state
                         : strcmp(argv[i], "--master") == 0  ? &o->master
                                                             : NULL;
    if (value != NULL) {
      if (++i == argc) return 0;
      *value = argv[i];
    } else if (strcmp(argv[i], "--quick") == 0) {
      o->quick = 1;
    } else if (strcmp(argv[i], "--check") == 0) {
      o->check = 1;
    } else {
      return 0;
    }
  }
  return o->data != NULL;
}

static int write_file(int (*writer)(const experiment *, const char *), const experiment *e, const char *folder,
                      const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  if (!writer(e, path)) return 0;
  printf("  %s\n", path);
  return 1;
}

static int report(const experiment *e, const options *o) {
  report_table(e);
  printf("\nWritten:\n");
  return write_file(report_results, e, o->output, "results.csv") &
         write_file(report_history, e, o->output, "scale_history.csv");
}

static int run(const gsc_api *api, const dataset *all, const options *o) {
  static experiment e; /* large */
  device d;
  printf("%s\n", api->library_get_build_info());
  device_open(&d, api, 1); /* the network is far too small for more threads */
  experiment_plan(&e, o->quick);
  if (!formats_of(o->state, o->master, &e.state_format, &e.master_format)) {
    device_close(&d);
    usage();
    return 0;
  }
  experiment_run(&e, &d, all);
  int good = report(&e, o);
  if (o->check && experiment_check(&e) > 0) good = 0;
  experiment_free(&e);
  device_close(&d);
  return good;
}

int main(int argc, char **argv) {
  options o;
  dataset all;
  gsc_library library;
  char message[4096];
  if (!parse(argc, argv, &o)) return usage();
  if (!dataset_read(&all, o.data)) return EXIT_FAILURE;
  if (all.count <= TRAIN_IMAGES) {
    fprintf(stderr, "digits: %s has %d images; more than %d are needed\n", o.data, all.count, TRAIN_IMAGES);
    dataset_free(&all);
    return EXIT_FAILURE;
  }
  if (!gsc_library_open(&library, o.library, message, sizeof message)) {
    fprintf(stderr, "digits: %s\n", message);
    dataset_free(&all);
    return EXIT_FAILURE;
  }
  const int good = run(library.api, &all, &o);
  gsc_library_close(&library);
  dataset_free(&all);
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
