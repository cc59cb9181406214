/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a small network on handwritten digits in fp32, in fp16, and in fp16 with loss scaling, with losses of several
 * magnitudes, and prints a table.
 *
 *     digits --data digits.csv [--library libgradscaler.so.1] [--quick] [--check]
 *
 * The library is loaded at run time, not linked. training.c uses it.
 */
#include <gradscaler/loader.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiment.h"

typedef struct options {
  const char *data;
  const char *library;
  int quick;
  int check;
} options;

static int usage(void) {
  fprintf(stderr,
          "usage: digits --data FILE [--library FILE] [--quick] [--check]\n"
          "  --data     the digits as text: 64 pixels and a label in each line\n"
          "  --library  the library to load; without it $GRADSCALER_LIBRARY, then the system's search\n"
          "  --quick    one seed, few steps, two magnitudes\n"
          "  --check    fail if scaling does not do what it should\n");
  return EXIT_FAILURE;
}

static int parse(int argc, char **argv, options *o) {
  memset(o, 0, sizeof *o);
  for (int i = 1; i < argc; i++) {
    const char **value = strcmp(argv[i], "--data") == 0      ? &o->data
                         : strcmp(argv[i], "--library") == 0 ? &o->library
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

static int run(const gsc_api *api, const dataset *all, const options *o) {
  static experiment e; /* large */
  device d;
  printf("%s\n", api->library_get_build_info());
  device_open(&d, api, 1); /* the network is far too small for more threads */
  experiment_plan(&e, o->quick);
  experiment_run(&e, &d, all);
  experiment_print(&e);
  const int good = !o->check || experiment_check(&e) == 0;
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
  int good = 0;
  if (all.count <= TRAIN_IMAGES) {
    fprintf(stderr, "digits: %s has %d images; more than %d are needed\n", o.data, all.count, TRAIN_IMAGES);
  } else if (!gsc_library_open(&library, o.library, message, sizeof message)) {
    fprintf(stderr, "digits: %s\n", message);
  } else {
    good = run(library.api, &all, &o);
    gsc_library_close(&library);
  }
  dataset_free(&all);
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
