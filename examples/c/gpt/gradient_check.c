/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward pass against finite differences, every element of every tensor of a small model, in fp64: the derivative
 * and (loss(w + h) - loss(w - h)) / 2h agree to about 1e-9 there, so that nothing that is merely nearly right passes.
 *
 *     gpt_gradient_check [library]
 */
#include <gradscaler/loader.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"
#include "random.h"

enum { BATCH = 2, CONTEXT = 6, ROWS = BATCH * CONTEXT };

static double loss_of(gpt *m, const unsigned char *tokens, const unsigned char *targets, real *logits) {
  gpt_forward(m, tokens, logits);
  return cross_entropy(logits, targets, (real)(1.0 / ROWS), ROWS, BYTES) / ROWS;
}

static void count_ready(void *user, int first, int count) {
  int *times = user;
  for (int i = first; i < first + count; i++) times[i]++;
}

/* Largest difference over a tensor, relative to its largest gradient. */
static double worst_of(gpt *m, int tensor, const unsigned char *tokens, const unsigned char *targets, real *logits) {
  const double h = 1e-5;
  real *w = m->weights[tensor].data;
  const real *g = m->grads[tensor].data;
  double worst = 0.0, largest = 0.0;
  for (int64_t k = 0; k < m->weights[tensor].count; k++) {
    const real before = w[k];
    w[k] = before + h;
    const double up = loss_of(m, tokens, targets, logits);
    w[k] = before - h;
    const double down = loss_of(m, tokens, targets, logits);
    w[k] = before;
    worst = fmax(worst, fabs((up - down) / (2 * h) - g[k]));
    largest = fmax(largest, fabs(g[k]));
  }
  return largest > 0.0 ? worst / largest : INFINITY;
}

int main(int argc, char **argv) {
  static gpt m;
  static real logits[ROWS * BYTES];
  const gpt_shape shape = {2, 8, 2, CONTEXT};
  unsigned char tokens[ROWS], targets[ROWS];
  int times[MAX_TENSORS] = {0}, failures = 0;
  char message[1024];
  gsc_library library;
  device d;
  random_source random = random_make(3, 1);
  if (!gsc_library_open(&library, argc > 1 ? argv[1] : NULL, message, sizeof message)) {
    fprintf(stderr, "%s\n", message);
    return EXIT_FAILURE;
  }
  device_open(&d, library.api, 1);
  gpt_create(&m, &d, &shape, REAL_DTYPE, BATCH);
  gpt_initial_values(&m, 1, m.weights);
  /* Far from the initial values, so that no gradient is near zero and no gain is 1. */
  for (int i = 0; i < m.tensors; i++) {
    for (int64_t k = 0; k < m.weights[i].count; k++) ((real *)m.weights[i].data)[k] += 0.3 * random_normal(&random);
  }
  for (int i = 0; i < ROWS; i++) {
    tokens[i] = (unsigned char)random_below(&random, BYTES);
    targets[i] = (unsigned char)random_below(&random, BYTES);
  }
  loss_of(&m, tokens, targets, logits);
  tensor_cast(&d, tensor_of(logits, ROWS * BYTES), m.first_delta);
  gpt_backward(&m, count_ready, times);
  for (int i = 0; i < m.tensors; i++) {
    const double worst = worst_of(&m, i, tokens, targets, logits);
    const int good = worst < 1e-7 && times[i] == 1;
    printf("%-24s %.1e%s\n", m.names[i], worst, good ? "" : times[i] == 1 ? "  WRONG" : "  not announced once");
    failures += !good;
  }
  gpt_destroy(&m);
  device_close(&d);
  gsc_library_close(&library);
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
