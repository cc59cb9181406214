/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * A 64-64-64-10 network with ReLU, whose weights, activations and gradients are all stored in one dtype, fp16 or fp32.
 * Products are accumulated in fp32 and rounded once to that dtype, as tensor cores do. It knows nothing of loss scaling:
 * the caller provides the first gradient of the backward pass.
 */
#include "dataset.h"
#include "device.h"

enum { MLP_LAYERS = 3, MLP_TENSORS = 2 * MLP_LAYERS };

/** Widths of the layers' inputs, and of the last one's output. */
extern const int mlp_widths[MLP_LAYERS + 1];
/** Names of the tensors, for the library's reports. */
extern const char *const mlp_tensor_names[MLP_TENSORS];

typedef struct mlp {
  const device *device;
  /** GSC_FP16 or GSC_FP32. */
  int32_t dtype;
  /** Most images in a batch. */
  int max_rows;
  /** Matrix (inputs x outputs) and bias of layer after layer. */
  gsc_tensor weights[MLP_TENSORS];
  gsc_tensor grads[MLP_TENSORS];
  /** [0] is the input, [MLP_LAYERS] the logits. */
  gsc_tensor activations[MLP_LAYERS + 1];
  /** Gradient with respect to the output of each layer. */
  gsc_tensor deltas[MLP_LAYERS];
  /** fp32 room for the operands and the result of one product. */
  float *left;
  float *right;
  float *result;
} mlp;

void mlp_create(mlp *m, const device *d, int32_t dtype, int max_rows);
void mlp_destroy(mlp *m);

/** He initialisation: fp32 values for every tensor, `values[i]` of the size of weights[i]. */
void mlp_initial_values(uint64_t seed, gsc_tensor values[MLP_TENSORS]);

/** Fills activations[1] ... activations[MLP_LAYERS]. */
void mlp_forward(mlp *m, const float *pixels, int rows);
/**
 * Mean cross-entropy of the logits of the last forward pass, and its gradient with respect to them in fp32, both times
 * `magnitude`. The gradient is where a backward pass starts.
 */
double mlp_loss(mlp *m, const int *labels, int rows, float magnitude, float *gradient);
/** Where the caller stores the first gradient, in the network's dtype. */
gsc_tensor mlp_first_delta(const mlp *m, int rows);
/** Fills grads[] from the first delta and the last forward pass. */
void mlp_backward(mlp *m, int rows);
/** Share of images whose largest logit is the right one. */
double mlp_accuracy(mlp *m, const dataset *test);
