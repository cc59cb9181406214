/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A decoder-only transformer over bytes, as GPT-2 has it: learnt positions, layer norms before attention and before the
 * feed-forward part, and an output matrix that is the embedding's. Weights, activations and gradients are all stored in
 * one dtype; every value that a function hands on is rounded to it, and sums run in fp32, as tensor cores do it. It
 * knows nothing of loss scaling: the caller provides the first gradient of the backward pass.
 */
#include "device.h"
#include "layers.h"

enum { BYTES = 256, MATRICES_PER_LAYER = 4, VECTORS_PER_LAYER = 8, MAX_LAYERS = 16 };
enum { MAX_TENSORS = 2 + MAX_LAYERS * (MATRICES_PER_LAYER + VECTORS_PER_LAYER) + 2 };

typedef struct gpt_shape {
  int32_t layers, width, heads, context;
} gpt_shape;

/** What one layer keeps for the backward pass, rounded to the model's dtype. */
typedef struct layer_activations {
  gsc_tensor input, normed, qkv, probabilities, mixed, middle, normed2, hidden, active;
} layer_activations;

typedef struct gpt {
  const device *device;
  gpt_shape shape;
  /** The dtype that everything is stored in. */
  int32_t dtype;
  /** Sequences in a batch. */
  int batch;
  /**
   * The matrices, which weight decay applies to, come first: the embeddings of bytes and positions, then qkv, projection,
   * hidden and output of layer after layer. The vectors follow: gain and bias of a layer's first norm, bias of qkv and
   * projection, gain and bias of the second norm, bias of hidden and output; at the end, gain and bias of the last norm.
   */
  int tensors, matrices;
  gsc_tensor weights[MAX_TENSORS];
  gsc_tensor grads[MAX_TENSORS];
  char names[MAX_TENSORS][32];
  layer_activations layers[MAX_LAYERS];
  gsc_tensor output, normed, logits;
  /** Where the caller stores the gradient of the logits, in the model's dtype. */
  gsc_tensor first_delta;
  /** The batch of the last forward pass. */
  unsigned char *tokens;
  /** Room for gradients that pass from layer to layer, and for operands. */
  gsc_tensor passing;
  float *room[8];
} gpt;

/** Called during the backward pass when gradients of tensors [first, first + count) are there. */
typedef void (*gpt_gradients_fn)(void *user, int first, int count);

void gpt_create(gpt *m, const device *d, const gpt_shape *shape, int32_t dtype, int batch);
void gpt_destroy(gpt *m);
/** GPT-2's initial values for every tensor, values[i] of the size of weights[i] and of fp32. */
void gpt_initial_values(const gpt *m, uint64_t seed, gsc_tensor *values);
/** Fills the activations from batch * context tokens, and `logits` (batch * context x BYTES). */
void gpt_forward(gpt *m, const unsigned char *tokens, float *logits);
/** Fills grads from first_delta and the last forward pass, last layer first. */
void gpt_backward(gpt *m, gpt_gradients_fn ready, void *user);
