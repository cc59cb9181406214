/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mixed-precision training loop. The arms differ in two things only: the dtype that weights, activations and gradients
 * are stored in, and whether the scaler is enabled. A disabled scaler has scale 1 and applies every step.
 */
#include "training.h"

#include <stdlib.h>
#include <string.h>

#include "flushed.h"
#include "mlp.h"
#include "random.h"

const char *const arm_names[ARM_COUNT] = {"fp32", "fp16, no scaling", "fp16 + GradScaler"};

/* A network and what the library needs to train it. */
typedef struct trainer {
  const device *device;
  mlp network;
  /* fp32 master weights; in the fp32 arm the network's own. */
  gsc_tensor master[MLP_TENSORS];
  gsc_tensor_list *params;
  gsc_tensor_list *grads;
  gsc_tensor_list *model_copy;
  gsc_optimizer *optimizer;
  gsc_scaler *scaler;
} trainer;

static gsc_tensor_list *make_list(trainer *t, const gsc_tensor *tensors) {
  gsc_tensor_list *list = NULL;
  CALL(t->device, tensor_list_create(t->device->context, tensors, MLP_TENSORS, mlp_tensor_names, &list), "tensor list");
  return list;
}

static void make_weights(trainer *t, uint64_t seed) {
  const int fp32 = t->network.dtype == GSC_FP32;
  for (int i = 0; i < MLP_TENSORS; i++) {
    t->master[i] = fp32 ? t->network.weights[i] : tensor_make(GSC_FP32, t->network.weights[i].count);
  }
  mlp_initial_values(seed, t->master);
  for (int i = 0; !fp32 && i < MLP_TENSORS; i++) tensor_cast(t->device, t->master[i], t->network.weights[i]);
}

static void trainer_create(trainer *t, const device *d, const run_settings *settings) {
  gsc_context *context = d->context;
  gsc_optimizer_options adamw;
  gsc_scaler_options policy;
  memset(t, 0, sizeof *t);
  t->device = d;
  mlp_create(&t->network, d, settings->arm == ARM_FP32 ? GSC_FP32 : GSC_FP16, BATCH_ROWS);
  make_weights(t, settings->seed);

  /* Split masters belong to the optimizer, which then steps the network's weights. */
  const int has_masters = settings->arm != ARM_FP32 && settings->master_format == GSC_MASTER_NONE;
  t->params = make_list(t, has_masters ? t->master : t->network.weights);
  t->grads = make_list(t, t->network.grads);
  /* The optimizer writes the 16-bit weights of the next forward pass in the same pass that updates the master weights. */
  if (has_masters) t->model_copy = make_list(t, t->network.weights);

  CALL(d, optimizer_options_init(&adamw, sizeof adamw, GSC_ADAMW), "optimizer options");
  adamw.lr = LEARNING_RATE;
  adamw.master_format = settings->master_format;
  adamw.state_format = settings->state_format;
  CALL(d, optimizer_create(context, &adamw, t->params, t->grads, t->model_copy, NULL, 0, &t->optimizer), "optimizer");

  CALL(d, scaler_options_init(&policy, sizeof policy, GSC_PRESET_TORCH), "scaler options");
  policy.enabled = settings->arm == ARM_SCALED;
  policy.init_scale = settings->initial_scale;
  policy.growth_interval = GROWTH_INTERVAL; /* the default, 2000, is for runs longer than this one */
  policy.history_capacity = settings->steps;
  CALL(d, scaler_create(context, &policy, &t->scaler), "scaler");
}

static void trainer_destroy(trainer *t) {
  const gsc_api *gsc = t->device->api;
  gsc->scaler_destroy(t->scaler);
  gsc->optimizer_destroy(t->optimizer);
  gsc->tensor_list_destroy(t->model_copy);
  gsc->tensor_list_destroy(t->grads);
  gsc->tensor_list_destroy(t->params);
  for (int i = 0; t->network.dtype != GSC_FP32 && i < MLP_TENSORS; i++) tensor_free(&t->master[i]);
  mlp_destroy(&t->network);
}

/* Forward and backward: the first gradient is multiplied by the scale in fp32, then rounded to the network's dtype. */
static void compute_gradients(trainer *t, const float *pixels, const int *labels, float magnitude) {
  float gradient[BATCH_ROWS * DIGITS_CLASSES];
  const gsc_tensor exact = tensor_of(gradient, BATCH_ROWS * DIGITS_CLASSES);
  const gsc_tensor stored = mlp_first_delta(&t->network, BATCH_ROWS);
  mlp_forward(&t->network, pixels, BATCH_ROWS);
  mlp_loss(&t->network, labels, BATCH_ROWS, magnitude, gradient);
  CALL(t->device, scaler_scale(t->scaler, &exact, &stored, 1, NULL), "scale");
  mlp_backward(&t->network, BATCH_ROWS);
}

/* Check, unscale, AdamW, 16-bit weights and the new scale. Whether the step was applied need not be known here. */
static void apply_gradients(trainer *t) {
  CALL(t->device, scaler_step(t->scaler, t->optimizer, NULL), "step");
  CALL(t->device, scaler_update(t->scaler, NULL), "update");
}

static void read_scaler(trainer *t, run_result *out) {
  CALL(t->device, scaler_get_scale_sync(t->scaler, &out->final_scale, NULL), "scale");
  CALL(t->device, optimizer_get_steps_sync(t->optimizer, NULL, &out->skipped, NULL), "steps");
  CALL(t->device, scaler_get_history_sync(t->scaler, NULL, 0, &out->history_count, NULL), "history");
  gsc_history_entry *history = allocate((size_t)out->history_count, sizeof *history);
  if (out->history_count > 0) {
    CALL(t->device, scaler_get_history_sync(t->scaler, history, out->history_count, &out->history_count, NULL),
         "history");
  }
  while (out->skipped_first < out->history_count && history[out->skipped_first].overflow) out->skipped_first++;
  free(history);
}

void run_training(const device *d, const dataset *all, const run_settings *settings, run_result *out) {
  float pixels[BATCH_ROWS * DIGITS_PIXELS];
  int labels[BATCH_ROWS];
  const int sample_every = settings->steps > FLUSHED_SAMPLES ? settings->steps / FLUSHED_SAMPLES : 1;
  random_source batches = random_make(settings->seed, 2);
  dataset train, test;
  flushed_meter flushed;
  trainer t;
  dataset_split(all, TRAIN_IMAGES, settings->seed, &train, &test);
  trainer_create(&t, d, settings);
  flushed_create(&flushed, d, BATCH_ROWS);

  for (int step = 0; step < settings->steps; step++) {
    dataset_batch(&train, &batches, BATCH_ROWS, pixels, labels);
    compute_gradients(&t, pixels, labels, settings->magnitude);
    if (settings->arm != ARM_FP32 && step % sample_every == 0) {
      flushed_sample(&flushed, &t.network, pixels, labels, BATCH_ROWS, settings->magnitude);
    }
    apply_gradients(&t);
  }

  memset(out, 0, sizeof *out);
  out->accuracy = mlp_accuracy(&t.network, &test);
  out->flushed = flushed_share(&flushed);
  out->flushed_first = flushed.first_share;
  read_scaler(&t, out);
  flushed_destroy(&flushed);
  trainer_destroy(&t);
  dataset_free(&train);
  dataset_free(&test);
}
