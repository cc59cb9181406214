/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The training loop: scaled loss, gradients added up over passes and checked layer by layer while the backward pass runs,
 * then clipping, AdamW, 16-bit weights and the new scale in two calls. The arms differ in two things only: the dtype of
 * the model, and whether the scaler is enabled.
 */
#include "trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const arm_names[ARM_COUNT] = {"fp32", "fp16, no scaling", "fp16 + GradScaler"};

static gsc_tensor_list *make_list(trainer *t, const gsc_tensor *tensors) {
  const char *names[MAX_TENSORS];
  gsc_tensor_list *list = NULL;
  for (int i = 0; i < t->model.tensors; i++) names[i] = t->model.names[i];
  CALL(t->device, tensor_list_create(t->device->context, tensors, t->model.tensors, names, &list), "list");
  return list;
}

static void make_weights(trainer *t) {
  gpt *m = &t->model;
  const int fp32 = m->dtype == GSC_FP32;
  for (int i = 0; i < m->tensors; i++) {
    t->masters[i] = fp32 ? m->weights[i] : tensor_make(GSC_FP32, m->weights[i].count);
    t->sums[i] = tensor_make(GSC_FP32, m->weights[i].count);
  }
  gpt_initial_values(m, t->recipe.seed, t->masters);
  for (int i = 0; !fp32 && i < m->tensors; i++) tensor_cast(t->device, t->masters[i], m->weights[i]);
}

static double tokens_per_update(const recipe *r) { return (double)r->batch * r->shape.context * r->accumulate; }
/* What the gradients are multiplied by compared with a mean over the tokens of the update. */
static double share(const recipe *r) { return tokens_per_update(r) / r->mean_over; }

static void make_optimizer(trainer *t) {
  gsc_optimizer_options matrices, vectors;
  CALL(t->device, optimizer_options_init(&matrices, sizeof matrices, GSC_ADAMW), "optimizer options");
  matrices.beta2 = 0.99;
  matrices.eps = 1e-8 * share(&t->recipe);
  matrices.weight_decay = WEIGHT_DECAY;
  matrices.state_format = t->recipe.state_format;
  matrices.master_format = t->recipe.master_format;
  matrices.seed = (int64_t)t->recipe.seed;
  vectors = matrices;
  vectors.weight_decay = 0.0;
  CALL(t->device,
       optimizer_create(t->device->context, &matrices, t->params, t->grads, t->model_copy, NULL, 0, &t->optimizer),
       "optimizer");
  int32_t group = 0;
  const int first = t->model.matrices;
  CALL(t->device, optimizer_add_group(t->optimizer, first, t->model.tensors - first, &vectors, &group), "group");
  /* Both groups follow the schedule by one word, which the step reads. */
  CALL(t->device, optimizer_set_device_lr(t->optimizer, 0, &t->learning_rate, NULL), "learning rate");
  CALL(t->device, optimizer_set_device_lr(t->optimizer, group, &t->learning_rate, NULL), "learning rate");
}

void trainer_create(trainer *t, const device *d, const recipe *r) {
  gsc_scaler_options policy;
  memset(t, 0, sizeof *t);
  t->device = d;
  t->recipe = *r;
  gpt_create(&t->model, d, &r->shape, r->arm == ARM_FP32 ? GSC_FP32 : GSC_FP16, r->batch);
  make_weights(t);
  const int has_fp32_masters = r->master_format == GSC_MASTER_NONE;
  t->params_of_step = has_fp32_masters ? t->masters : t->model.weights;
  t->params = make_list(t, t->params_of_step);
  t->grads = make_list(t, t->sums);
  if (r->arm != ARM_FP32 && has_fp32_masters) t->model_copy = make_list(t, t->model.weights);
  make_optimizer(t);
  CALL(d, scaler_options_init(&policy, sizeof policy, GSC_PRESET_TORCH), "scaler options");
  policy.enabled = r->arm == ARM_SCALED;
  policy.growth_interval = GROWTH_INTERVAL; /* the default, 2000, is for runs longer than this one */
  CALL(d, scaler_create(d->context, &policy, &t->scaler), "scaler");
  const size_t rows = (size_t)r->batch * (size_t)r->shape.context;
  t->batches = random_make(r->seed, 2);
  t->tokens = allocate(rows, 1);
  t->targets = allocate(rows, 1);
  t->logits = allocate(rows * BYTES, sizeof *t->logits);
}

void trainer_destroy(trainer *t) {
  const gsc_api *gsc = t->device->api;
  gsc->optimizer_destroy(t->optimizer);
  gsc->scaler_destroy(t->scaler);
  gsc->tensor_list_destroy(t->params);
  gsc->tensor_list_destroy(t->grads);
  gsc->tensor_list_destroy(t->model_copy);
  for (int i = 0; i < t->model.tensors; i++) {
    if (t->model.dtype != GSC_FP32) tensor_free(&t->masters[i]);
    tensor_free(&t->sums[i]);
  }
  gpt_destroy(&t->model);
  free(t->tokens);
  free(t->targets);
  free(t->logits);
}

/* A layer's gradients are there: add them up, and with the last pass of an update look for inf and NaN. */
static void gradients_ready(void *user, int first, int count) {
  trainer *t = user;
  CALL(t->device,
       ops_axpby(t->device->context, 1.0, t->model.grads + first, t->pass == 0 ? 0.0 : 1.0, t->sums + first, count,
                 NULL),
       "adding gradients");
  if (t->pass < t->recipe.accumulate - 1) return;
  CALL(t->device, scaler_check_range(t->scaler, t->grads, first, count, NULL), "check");
}

static float scheduled(const recipe *r, int step) {
  if (step < WARMUP_STEPS) return (float)(LEARNING_RATE * (step + 1) / WARMUP_STEPS);
  const double done = (double)(step - WARMUP_STEPS) / (r->steps > WARMUP_STEPS ? r->steps - WARMUP_STEPS : 1);
  return (float)(LEARNING_RATE * (0.1 + 0.45 * (1.0 + cos(3.141592653589793 * done))));
}

double trainer_step(trainer *t, const text *source) {
  const recipe *r = &t->recipe;
  const int rows = r->batch * r->shape.context;
  double loss = 0.0;
  for (t->pass = 0; t->pass < r->accumulate; t->pass++) {
    text_batch(source, &t->batches, r->batch, r->shape.context, t->tokens, t->targets);
    gpt_forward(&t->model, t->tokens, t->logits);
    loss += cross_entropy(t->logits, t->targets, (float)(1.0 / r->mean_over), rows, BYTES);
    /* Where loss scaling takes place: the first gradient is multiplied before it is rounded to fp16. */
    const gsc_tensor exact = tensor_of(t->logits, (int64_t)rows * BYTES);
    CALL(t->device, scaler_scale(t->scaler, &exact, &t->model.first_delta, 1, NULL), "scale");
    gpt_backward(&t->model, gradients_ready, t);
  }
  t->learning_rate = scheduled(r, t->step);
  CALL(t->device, scaler_clip_grad_norm(t->scaler, t->grads, MAX_NORM * share(r), GSC_NORM_L2, NULL), "clip");
  CALL(t->device, scaler_step(t->scaler, t->optimizer, NULL), "step");
  CALL(t->device, scaler_update(t->scaler, NULL), "update");
  t->step++;
  return loss / (rows * r->accumulate);
}

double trainer_evaluate(trainer *t, const text *source) {
  enum { BATCHES = 8 };
  const recipe *r = &t->recipe;
  const int rows = r->batch * r->shape.context;
  double loss = 0.0;
  for (int i = 0; i < BATCHES; i++) {
    text_held_out(source, i, r->batch, r->shape.context, t->tokens, t->targets);
    gpt_forward(&t->model, t->tokens, t->logits);
    loss += cross_entropy(t->logits, t->targets, 1, rows, BYTES);
  }
  return loss / (BATCHES * rows);
}
