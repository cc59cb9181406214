/* SPDX-License-Identifier: Apache-2.0
 *
 * What a step and an update cost in C on a list of one element: the smallest work there is, so that what remains is the
 * cost of the calls. Prints nanoseconds, the least of many rounds, for compare_overhead.cmake. The programs in the other
 * languages do the same. The optimizer is SGD; with any argument it is AdamW.
 */
#define _POSIX_C_SOURCE 199309L
#include <gradscaler/gradscaler.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 300, CALLS = 1000 };

static void require(gsc_status status) {
  if (status == GSC_OK) return;
  fprintf(stderr, "overhead: %s\n", gsc_error_get_message());
  exit(EXIT_FAILURE);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  (void)argv;
  float weight = 0, gradient = 0;
  const gsc_tensor w = GSC_TENSOR_INIT(&weight, 1, GSC_FP32), g = GSC_TENSOR_INIT(&gradient, 1, GSC_FP32);
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  gsc_optimizer_options sgd;
  gsc_context *context;
  gsc_tensor_list *params, *grads;
  gsc_optimizer *optimizer;
  gsc_scaler *scaler;
  double least = 1e18;
  options.num_threads = 1;
  require(gsc_context_create(&options, &context));
  require(gsc_tensor_list_create(context, &w, 1, NULL, &params));
  require(gsc_tensor_list_create(context, &g, 1, NULL, &grads));
  require(gsc_optimizer_options_init(&sgd, sizeof sgd, GSC_SGD));
  require(gsc_optimizer_create(context, argc > 1 ? NULL : &sgd, params, grads, NULL, NULL, 0, &optimizer));
  require(gsc_scaler_create(context, NULL, &scaler));
  for (int round = 0; round < ROUNDS; round++) {
    const double start = now();
    for (int i = 0; i < CALLS; i++) {
      require(gsc_scaler_step(scaler, optimizer, NULL));
      require(gsc_scaler_update(scaler, NULL));
    }
    const double each = (now() - start) / CALLS;
    if (each < least) least = each;
  }
  printf("%.0f\n", least);
  gsc_scaler_destroy(scaler);
  gsc_optimizer_destroy(optimizer);
  gsc_tensor_list_destroy(grads);
  gsc_tensor_list_destroy(params);
  gsc_context_destroy(context);
  return EXIT_SUCCESS;
}
