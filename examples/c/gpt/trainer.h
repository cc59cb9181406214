/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A model and what the library needs to train it. Read trainer.c to see how the library is used. */
#include "model.h"
#include "random.h"
#include "text.h"

/** What weights, activations and gradients are stored in, and whether the loss is scaled. */
typedef enum arm { ARM_FP32 = 0, ARM_FP16 = 1, ARM_SCALED = 2, ARM_COUNT = 3 } arm;
extern const char *const arm_names[ARM_COUNT];

#define LEARNING_RATE 2e-3
#define WEIGHT_DECAY 0.1
#define MAX_NORM 1.0
enum { WARMUP_STEPS = 10, GROWTH_INTERVAL = 20 };

typedef struct recipe {
  gpt_shape shape;
  arm arm;
  /** Sequences in a pass, and passes whose gradients are added up for an update. */
  int32_t batch, accumulate;
  /** Updates of the whole run: the length of the learning rate's cosine. */
  int32_t steps;
  /**
   * Number of elements that the loss is averaged over; a pass adds its share. More than an update has tokens means that
   * its gradients are a part of a larger mean's. The limit of the norm and AdamW's eps are divided alike, so that in
   * exact arithmetic it makes no difference.
   */
  double mean_over;
  uint64_t seed;
  /** GSC_STATE_* of AdamW, and GSC_MASTER_*: with GSC_MASTER_NONE the masters of fp16 weights are fp32 tensors. */
  int32_t state_format, master_format;
} recipe;

typedef struct trainer {
  const device *device;
  recipe recipe;
  gpt model;
  /** fp32 master weights, and fp32 sums of the gradients of an update. */
  gsc_tensor masters[MAX_TENSORS];
  gsc_tensor sums[MAX_TENSORS];
  /** What the optimizer updates: the masters, or fp16 weights whose masters are split or missing. */
  const gsc_tensor *params_of_step;
  gsc_tensor_list *params, *grads, *model_copy;
  gsc_optimizer *optimizer;
  gsc_scaler *scaler;
  /** The word that the optimizer reads the learning rate from. */
  float learning_rate;
  int32_t step;
  random_source batches;
  /** Pass of the current update. */
  int pass;
  unsigned char *tokens, *targets;
  float *logits;
} trainer;

void trainer_create(trainer *t, const device *d, const recipe *r);
void trainer_destroy(trainer *t);
/** One update. Returns its mean loss in nats a byte. */
double trainer_step(trainer *t, const text *source);
/** Mean loss on the text held out. */
double trainer_evaluate(trainer *t, const text *source);

/** Everything that the next step depends on, to a file. 1, or 0 with a sentence on stderr. */
int trainer_save(trainer *t, const char *path);
/** Restores it into a trainer of the same recipe. The run goes on as if it had not stopped, bit for bit. */
int trainer_load(trainer *t, const char *path);
