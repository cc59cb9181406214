/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole training loop: groups, a learning rate schedule, gradient accumulation, clipping, reports, and a checkpoint
 * from which training goes on with the same bits. It fits y = x . weight + bias, up to the weight decay. Expected last line:
 *
 *     weight = 1.00 -2.00 2.99 -3.99, bias = 0.50; after resuming: the same bits
 */
#include <gradscaler/gradscaler.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { n = 4, micro_batches = 2, warmup = 20, steps = 600 };
static float weight[n], bias[1], weight_grad[n], bias_grad[1];

static void must(gsc_status status) {
  if (status == GSC_OK) return;
  fprintf(stderr, "%s\n", gsc_error_get_message());
  exit(1);
}

static double learning_rate(int step) {
  const double rest = (double)(step - warmup) / (steps - warmup);
  return 0.1 * (step < warmup ? (step + 1.0) / warmup : 0.5 * (1.0 + cos(3.14159265358979 * rest)));
}

/* Adds the gradients of factor * mean((x . weight + bias - y)^2) over eight samples. */
static void backward(int number, float factor) {
  unsigned random = 1u + (unsigned)number;
  for (int sample = 0; sample < 8; ++sample) {
    float x[n], error = bias[0] - 0.5f;
    for (int i = 0; i < n; ++i) {
      random = random * 1664525u + 1013904223u;
      x[i] = (float)(random >> 8) / 8388608.0f - 1.0f;
      error += x[i] * (weight[i] - (float)(i % 2 ? -(i + 1) : i + 1));
    }
    for (int i = 0; i < n; ++i) weight_grad[i] += factor * 2.0f * error * x[i] / 8.0f;
    bias_grad[0] += factor * 2.0f * error / 8.0f;
  }
}

/* What training consists of besides the buffers. */
typedef struct {
  gsc_context *ctx;
  gsc_tensor_list *params, *grads;
  gsc_optimizer *adamw;
  gsc_scaler *scaler;
} trainer;

static trainer create(void) {
  const gsc_tensor p[] = {GSC_TENSOR_INIT(weight, n, GSC_FP32), GSC_TENSOR_INIT(bias, 1, GSC_FP32)};
  const gsc_tensor g[] = {GSC_TENSOR_INIT(weight_grad, n, GSC_FP32), GSC_TENSOR_INIT(bias_grad, 1, GSC_FP32)};
  const char *const names[] = {"weight", "bias"};
  trainer t;
  must(gsc_context_create(NULL, &t.ctx));
  must(gsc_tensor_list_create(t.ctx, p, 2, names, &t.params));
  must(gsc_tensor_list_create(t.ctx, g, 2, names, &t.grads));
  gsc_optimizer_options options;
  must(gsc_optimizer_options_init(&options, sizeof options, GSC_ADAMW));
  options.flags = GSC_OPTIMIZER_ZERO_GRADS; /* a step clears the gradients that it has read */
  must(gsc_optimizer_create(t.ctx, &options, t.params, t.grads, NULL, NULL, 0, &t.adamw));
  options.weight_decay = 0.0;
  must(gsc_optimizer_add_group(t.adamw, 1, 1, &options, NULL)); /* group 1: the bias */
  must(gsc_scaler_create(t.ctx, NULL, &t.scaler));
  return t;
}

static void train(trainer *t, int first, int last) {
  static float share[1] = {1.0f / micro_batches}, scaled[1];
  const gsc_tensor from = GSC_TENSOR_INIT(share, 1, GSC_FP32), to = GSC_TENSOR_INIT(scaled, 1, GSC_FP32);
  for (int step = first; step < last; ++step) {
    for (int group = 0; group < 2; ++group) must(gsc_optimizer_set_lr(t->adamw, group, learning_rate(step), NULL));
    must(gsc_scaler_scale(t->scaler, &from, &to, 1, NULL)); /* the same scale for all micro-batches */
    for (int i = 0; i < micro_batches; ++i) backward(step * micro_batches + i, scaled[0]);
    must(gsc_scaler_clip_grad_norm(t->scaler, t->grads, 1.0, GSC_NORM_L2, NULL));
    must(gsc_scaler_step_and_update(t->scaler, t->adamw, NULL));
    if (step % 200 != 199) continue;
    gsc_report report = {.struct_size = sizeof report};
    must(gsc_scaler_get_report_sync(t->scaler, t->grads, &report, NULL));
    printf("step %d: scale %.0f, norm %.3g, %lld skipped\n", step + 1, report.scale, report.grad_norm,
           (long long)report.skipped);
  }
}

/* A checkpoint; write its parts to a file in a program of your own. */
typedef struct {
  float weight[n], bias[1];
  gsc_scaler_state scaler;
  void *optimizer;
  int64_t optimizer_bytes;
} checkpoint;

static void save(const trainer *t, checkpoint *c) {
  memcpy(c->weight, weight, sizeof weight);
  memcpy(c->bias, bias, sizeof bias);
  c->scaler.struct_size = sizeof c->scaler;
  must(gsc_scaler_get_state_sync(t->scaler, &c->scaler, NULL));
  must(gsc_optimizer_get_save_size(t->adamw, &c->optimizer_bytes));
  c->optimizer = malloc((size_t)c->optimizer_bytes);
  if (c->optimizer == NULL) exit(1);
  must(gsc_optimizer_save_sync(t->adamw, c->optimizer, c->optimizer_bytes, NULL));
}

static void load(trainer *t, const checkpoint *c) {
  memcpy(weight, c->weight, sizeof weight);
  memcpy(bias, c->bias, sizeof bias);
  must(gsc_scaler_set_state(t->scaler, &c->scaler, NULL));
  must(gsc_optimizer_load_sync(t->adamw, c->optimizer, c->optimizer_bytes, NULL));
}

static void destroy(trainer *t) {
  gsc_scaler_destroy(t->scaler);
  gsc_optimizer_destroy(t->adamw);
  gsc_tensor_list_destroy(t->grads);
  gsc_tensor_list_destroy(t->params);
  gsc_context_destroy(t->ctx);
}

int main(void) {
  trainer t = create();
  checkpoint c;
  train(&t, 0, steps / 2);
  save(&t, &c);
  train(&t, steps / 2, steps);
  destroy(&t);
  float found[n], found_bias = bias[0];
  memcpy(found, weight, sizeof weight);

  t = create(); /* as another process would */
  load(&t, &c);
  free(c.optimizer);
  train(&t, steps / 2, steps);
  destroy(&t);
  const int same = memcmp(found, weight, sizeof weight) == 0 && memcmp(&found_bias, bias, sizeof bias) == 0;
  printf("weight = %.2f %.2f %.2f %.2f, bias = %.2f; after resuming: %s\n", weight[0], weight[1], weight[2], weight[3],
         bias[0], same ? "the same bits" : "OTHER BITS");
  for (int i = 0; i < n; ++i) { /* the weight decay keeps them a little below */
    if (fabsf(weight[i] - (float)(i % 2 ? -(i + 1) : i + 1)) > 0.02f) return 1;
  }
  return same ? 0 : 1;
}
