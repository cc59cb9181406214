/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Written for reading: plain loops over the formulas, except for the products, which take nearly all of the time.
 */
#include "layers.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <tgmath.h>

#include "product.h"

static void statistics(const real *x, int width, real *mean, real *rstd) {
  real sum = 0, squares = 0;
  for (int j = 0; j < width; j++) sum += x[j];
  *mean = sum / width;
  for (int j = 0; j < width; j++) squares += (x[j] - *mean) * (x[j] - *mean);
  *rstd = 1 / sqrt(squares / width + (real)1e-5);
}

void norm_forward(const real *x, const real *gain, const real *bias, real *out, int rows, int width) {
  for (int i = 0; i < rows; i++, x += width, out += width) {
    real mean, rstd;
    statistics(x, width, &mean, &rstd);
    for (int j = 0; j < width; j++) out[j] = (x[j] - mean) * rstd * gain[j] + bias[j];
  }
}

void norm_backward(const real *dout, const real *x, const real *gain, real *dx, real *dgain, real *dbias, int rows,
                   int width) {
  memset(dgain, 0, (size_t)width * sizeof *dgain);
  memset(dbias, 0, (size_t)width * sizeof *dbias);
  for (int i = 0; i < rows; i++, dout += width, x += width, dx += width) {
    real mean, rstd, sum = 0, along = 0;
    statistics(x, width, &mean, &rstd);
    for (int j = 0; j < width; j++) {
      const real normed = (x[j] - mean) * rstd, d = dout[j] * gain[j];
      dgain[j] += dout[j] * normed;
      dbias[j] += dout[j];
      sum += d;
      along += d * normed;
    }
    for (int j = 0; j < width; j++) {
      dx[j] = rstd * (dout[j] * gain[j] - sum / width - (x[j] - mean) * rstd * along / width);
    }
  }
}

/* tanh(sqrt(2 / pi) * (x + 0.044715 x^3)) */
static real inner(real x) { return tanh((real)0.7978845608028654 * (x + (real)0.044715 * x * x * x)); }

void gelu_forward(real *x, int count) {
  for (int i = 0; i < count; i++) x[i] = x[i] * (1 + inner(x[i])) / 2;
}

void gelu_backward(const real *x, real *d, int count) {
  for (int i = 0; i < count; i++) {
    const real t = inner(x[i]);
    const real slope = (real)0.7978845608028654 * (1 + 3 * (real)0.044715 * x[i] * x[i]);
    d[i] *= (1 + t + x[i] * (1 - t * t) * slope) / 2;
  }
}

void linear_forward(const real *x, const real *weight, const real *bias, real *out, int rows, int in_width,
                    int out_width) {
  product(x, weight, out, rows, in_width, out_width);
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < out_width; j++) out[(size_t)i * out_width + j] += bias[j];
  }
}

void linear_backward(const real *dout, const real *x, const real *weight, real *dx, real *dweight, real *dbias,
                     real *room, int rows, int in_width, int out_width) {
  real *x_up = room, *weight_up = room + (size_t)in_width * rows;
  transpose(x, x_up, rows, in_width);
  product(x_up, dout, dweight, in_width, rows, out_width);
  transpose(weight, weight_up, in_width, out_width);
  product(dout, weight_up, dx, rows, out_width, in_width);
  memset(dbias, 0, (size_t)out_width * sizeof *dbias);
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < out_width; j++) dbias[j] += dout[(size_t)i * out_width + j];
  }
}

static real dot(const real *a, const real *b, int count) {
  real sum = 0;
  for (int i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

static void add(real *to, const real *from, real factor, int count) {
  for (int i = 0; i < count; i++) to[i] += factor * from[i];
}

/* Where a head's query of token t of sequence b begins; its key is `width` further on, its value twice that. */
static size_t query_at(const attention_shape *s, int b, int h, int t) {
  return ((size_t)b * s->context + t) * 3 * s->width + (size_t)h * (s->width / s->heads);
}
static size_t probabilities_at(const attention_shape *s, int b, int h, int t) {
  return (((size_t)b * s->heads + h) * s->context + t) * s->context;
}
static size_t mixed_at(const attention_shape *s, int b, int h, int t) {
  return ((size_t)b * s->context + t) * s->width + (size_t)h * (s->width / s->heads);
}

void attention_probabilities(const attention_shape *s, const real *qkv, real *probabilities) {
  const int size = s->width / s->heads;
  const real factor = 1 / sqrt((real)size);
  for (int b = 0; b < s->batch; b++) {
    for (int h = 0; h < s->heads; h++) {
      for (int t = 0; t < s->context; t++) {
        real *row = probabilities + probabilities_at(s, b, h, t), largest = 0, sum = 0;
        for (int u = 0; u <= t; u++) {
          row[u] = factor * dot(qkv + query_at(s, b, h, t), qkv + query_at(s, b, h, u) + s->width, size);
          if (u == 0 || row[u] > largest) largest = row[u];
        }
        for (int u = 0; u <= t; u++) sum += row[u] = exp(row[u] - largest);
        for (int u = 0; u < s->context; u++) row[u] = u <= t ? row[u] / sum : 0;
      }
    }
  }
}

void attention_mix(const attention_shape *s, const real *qkv, const real *probabilities, real *out) {
  const int size = s->width / s->heads;
  memset(out, 0, (size_t)s->batch * s->context * s->width * sizeof *out);
  for (int b = 0; b < s->batch; b++) {
    for (int h = 0; h < s->heads; h++) {
      for (int t = 0; t < s->context; t++) {
        const real *row = probabilities + probabilities_at(s, b, h, t);
        for (int u = 0; u <= t; u++) {
          add(out + mixed_at(s, b, h, t), qkv + query_at(s, b, h, u) + 2 * s->width, row[u], size);
        }
      }
    }
  }
}

/* One token's query, and what it asks of the keys and values before it. */
static void token_backward(const attention_shape *s, const real *dout, const real *qkv, const real *row, real *dqkv,
                           int b, int h, int t) {
  const int size = s->width / s->heads;
  const real factor = 1 / sqrt((real)size);
  const size_t query = query_at(s, b, h, t);
  const real *d = dout + mixed_at(s, b, h, t);
  real mean = 0;
  for (int u = 0; u <= t; u++) mean += row[u] * dot(d, qkv + query_at(s, b, h, u) + 2 * s->width, size);
  for (int u = 0; u <= t; u++) {
    const size_t key = query_at(s, b, h, u) + s->width, value = key + s->width;
    const real score = factor * row[u] * (dot(d, qkv + value, size) - mean);
    add(dqkv + query, qkv + key, score, size);
    add(dqkv + key, qkv + query, score, size);
    add(dqkv + value, d, row[u], size);
  }
}

void attention_backward(const attention_shape *s, const real *dout, const real *qkv, const real *probabilities,
                        real *dqkv) {
  memset(dqkv, 0, (size_t)s->batch * s->context * 3 * s->width * sizeof *dqkv);
  for (int b = 0; b < s->batch; b++) {
    for (int h = 0; h < s->heads; h++) {
      for (int t = 0; t < s->context; t++) {
        token_backward(s, dout, qkv, probabilities + probabilities_at(s, b, h, t), dqkv, b, h, t);
      }
    }
  }
}

double cross_entropy(real *logits, const unsigned char *targets, real weight, int rows, int classes) {
  double loss = 0;
  for (int i = 0; i < rows; i++, logits += classes) {
    real largest = logits[0], sum = 0;
    for (int j = 1; j < classes; j++) largest = logits[j] > largest ? logits[j] : largest;
    const real target = logits[targets[i]] - largest;
    for (int j = 0; j < classes; j++) sum += logits[j] = exp(logits[j] - largest);
    loss += log((double)sum) - target;
    for (int j = 0; j < classes; j++) logits[j] = weight * (logits[j] / sum - (j == targets[i] ? 1 : 0));
  }
  return loss;
}
