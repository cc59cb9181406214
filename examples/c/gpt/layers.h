/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPT_LAYERS_H
#define GPT_LAYERS_H
/*
 * The functions of a transformer and their derivatives, on arrays of reals: nothing here knows how anything is stored.
 * `rows` are tokens. Gradients of parameters are written, not added to.
 */
#include "product.h"

/** out = (x - mean) / sqrt(variance + 1e-5) * gain + bias, over each row of `width`. */
void norm_forward(const real *x, const real *gain, const real *bias, real *out, int rows, int width);
/** dx, dgain and dbias from dout and the input. */
void norm_backward(const real *dout, const real *x, const real *gain, real *dx, real *dgain, real *dbias, int rows,
                   int width);

/** x = gelu(x), with the approximation by tanh. */
void gelu_forward(real *x, int count);
/** d = d * gelu'(x). */
void gelu_backward(const real *x, real *d, int count);

/** out (rows x out_width) = x * weight (in_width x out_width) + bias. */
void linear_forward(const real *x, const real *weight, const real *bias, real *out, int rows, int in_width,
                    int out_width);
/** dx, dweight and dbias from dout. `room` holds in_width * (rows + out_width) reals. */
void linear_backward(const real *dout, const real *x, const real *weight, real *dx, real *dweight, real *dbias,
                     real *room, int rows, int in_width, int out_width);

/** Sizes of causal self-attention; rows of qkv are query, key and value of a token, `width` each. */
typedef struct attention_shape {
  int batch, context, heads, width;
} attention_shape;
/** Softmax of the scores: batch x heads x context x context, zero above the diagonal. */
void attention_probabilities(const attention_shape *s, const real *qkv, real *probabilities);
/** out (batch * context x width): values mixed by probabilities. */
void attention_mix(const attention_shape *s, const real *qkv, const real *probabilities, real *out);
/** dqkv from dout. */
void attention_backward(const attention_shape *s, const real *dout, const real *qkv, const real *probabilities,
                        real *dqkv);

/**
 * Returns the sum of the cross-entropies of `rows` rows of logits; logits become the gradient of that sum times
 * `weight`.
 */
double cross_entropy(real *logits, const unsigned char *targets, real weight, int rows, int classes);

#endif
