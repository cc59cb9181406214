/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that the model makes up, one after the other. Every one costs a whole forward pass over the context, of a copy of
 * the model for a single sequence.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

/* A byte drawn from a row of logits, sharpened a little. */
static unsigned char draw(const float *logits, random_source *random) {
  double weights[BYTES], largest = logits[0], sum = 0.0;
  for (int j = 1; j < BYTES; j++) largest = logits[j] > largest ? logits[j] : largest;
  for (int j = 0; j < BYTES; j++) sum += weights[j] = exp((logits[j] - largest) / 0.7);
  double left = sum * random_below(random, 1 << 30) / (double)(1 << 30);
  int chosen = 0;
  while (chosen < BYTES - 1 && (left -= weights[chosen]) >= 0.0) chosen++;
  return (unsigned char)chosen;
}

void trainer_sample(trainer *t, int count) {
  const int context = t->recipe.shape.context;
  random_source random = random_make(t->recipe.seed, 3);
  unsigned char *tokens = allocate((size_t)context, 1);
  float *logits = allocate((size_t)context * BYTES, sizeof *logits);
  gpt one;
  gpt_create(&one, t->device, &t->recipe.shape, t->model.dtype, 1);
  for (int i = 0; i < one.tensors; i++) tensor_cast(t->device, t->model.weights[i], one.weights[i]);
  int length = 1;
  tokens[0] = '\n';
  for (int i = 0; i < count; i++) {
    gpt_forward(&one, tokens, logits);
    const unsigned char next = draw(logits + (size_t)(length - 1) * BYTES, &random);
    putchar(next);
    if (length == context) {
      length = context / 2;
      memmove(tokens, tokens + context - length, (size_t)length);
    }
    tokens[length++] = next;
  }
  putchar('\n');
  gpt_destroy(&one);
  free(tokens);
  free(logits);
}
