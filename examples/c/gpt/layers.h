/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The functions of a transformer and their derivatives, on arrays of floats. They allocate and convert nothing.
 * `rows` are tokens. Gradients of parameters are written, not added to.
 */
#include "product.h"

/** out = (x - mean) / sqrt(variance + 1e-5) * gain + bias, over each row of `width`. */
void norm_forward(const float *x, const float *gain, const float *bias, float *out, int rows, int width);
/** dx, dgain and dbias from dout and the input. */
void norm_backward(const float *dout, const float *x, const float *gain, float *dx, float *dgain, float *dbias,
                   int rows, int width);

/** x = gelu(x), with the approximation by tanh. */
void gelu_forward(float *x, int count);
/** d = d * gelu'(x). */
void gelu_backward(const float *x, float *d, int count);

/** out (rows x out_width) = x * weight (in_width x out_width) + bias. */
void linear_forward(const float *x, const float *weight, const float *bias, float *out, int rows, int in_width,
                    int out_width);
/** dx, dweight and dbias from dout. `room` holds in_width * (rows + out_width) floats. */
void linear_backward(const float *dout, const float *x, const float *weight, float *dx, float *dweight, float *dbias,
                     float *room, int rows, int in_width, int out_width);

/** Sizes of causal self-attention; rows of qkv are query, key and value of a token, `width` each. */
typedef struct attention_shape {
  int batch, context, heads, width;
} attention_shape;
/** Softmax of the scores: batch x heads x context x context, zero above the diagonal. */
void attention_probabilities(const attention_shape *s, const float *qkv, float *probabilities);
/** out (batch * context x width): values mixed by probabilities. */
void attention_mix(const attention_shape *s, const float *qkv, const float *probabilities, float *out);
/** dqkv from dout. */
void attention_backward(const attention_shape *s, const float *dout, const float *qkv, const float *probabilities,
                        float *dqkv);

/**
 * Returns the sum of the cross-entropies of `rows` rows of logits; logits become the gradient of that sum times
 * `weight`.
 */
double cross_entropy(float *logits, const unsigned char *targets, float weight, int rows, int classes);
