/* SPDX-License-Identifier: Apache-2.0 */
/* Written for reading: plain loops over the formulas, except for the products, which take nearly all of the time. */
#include "layers.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <tgmath.h>

#include "product.h"

static void statistics(const float *x, int width, float *mean, float *rstd) {
  float sum = 0, squares = 0;
  for (int j = 0; j < width; j++) sum += x[j];
  *mean = sum / width;
  for (int j = 0; j < width; j++) squares += (x[j] - *mean) * (x[j] - *mean);
  *rstd = 1 / sqrt(squares / width + 1e-5f);
}

void norm_forward(const float *x, const float *gain, const float *bias, float *out, int rows, int width) {
  for (int i = 0; i < rows; i++, x += width, out += width) {
    float mean, rstd;
    statistics(x, width, &mean, &rstd);
    for (int j = 0; j < width; j++) out[j] = (x[j] - mean) * rstd * gain[j] + bias[j];
  }
}

void norm_backward(const float *dout, const float *x, const float *gain, float *dx, float *dgain, float *dbias,
                   int rows, int width) {
  memset(dgain, 0, (size_t)width * sizeof *dgain);
  memset(dbias, 0, (size_t)width * sizeof *dbias);
  for (int i = 0; i < rows; i++, dout += width, x += width, dx += width) {
    float mean, rstd, sum = 0, along = 0;
    statistics(x, width, &mean, &rstd);
    for (int j = 0; j < width; j++) {
      const float normed = (x[j] - mean) * rstd, d = dout[j] * gain[j];
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
static float inner(float x) { return tanh(0.7978845608028654f * (x + 0.044715f * x * x * x)); }

void gelu_forward(float *x, int count) {
  for (int i = 0; i < count; i++) x[i] = x[i] * (1 + inner(x[i])) / 2;
}

void gelu_backward(const float *x, float *d, int count) {
  for (int i = 0; i < count; i++) {
    const float t = inner(x[i]);
    const float slope = 0.7978845608028654f * (1 + 3 * 0.044715f * x[i] * x[i]);
    d[i] *= (1 + t + x[i] * (1 - t * t) * slope) / 2;
  }
}

void linear_forward(const float *x, const float *weight, const float *bias, float *out, int rows, int in_width,
                    int out_width) {
  product(x, weight, out, rows, in_width, out_width);
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < out_width; j++) out[(size_t)i * out_width + j] += bias[j];
  }
}

void linear_backward(const float *dout, const float *x, const float *weight, float *dx, float *dweight, float *dbias,
                     float *room, int rows, int in_width, int out_width) {
  float *x_up = room, *weight_up = room + (size_t)in_width * rows;
  transpose(x, x_up, rows, in_width);
  product(x_up, dout, dweight, in_width, rows, out_width);
  transpose(weight, weight_up, in_width, out_width);
  product(dout, weight_up, dx, rows, out_width, in_width);
  memset(dbias, 0, (size_t)out_width * sizeof *dbias);
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < out_width; j++) dbias[j] += dout[(size_t)i * out_width + j];
  }
}

static float dot(const float *a, const float *b, int count) {
  float sum = 0;
  for (int i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

static void add(float *to, const float *from, float factor, int count) {
  for (int i = 0; i < count; i++) to[i] += factor * from[i];
}

/* Token t of a head, number i of batch x heads x context: where the query of its sequence's first token, its row of
 * probabilities and its output begin. */
typedef struct place {
  int t;
  size_t first, row, mixed;
} place;

static place place_of(const attention_shape *s, int i) {
  const int head = i / s->context, t = i % s->context;
  const size_t token = (size_t)(head / s->heads) * s->context, part = (size_t)(head % s->heads) * (s->width / s->heads);
  const place p = {t, token * 3 * s->width + part, (size_t)i * s->context, (token + t) * s->width + part};
  return p;
}

/* The query of token u of the same sequence; its key is `width` further on, its value twice that. */
static size_t query_at(const attention_shape *s, place p, int u) { return p.first + (size_t)u * 3 * s->width; }

void attention_probabilities(const attention_shape *s, const float *qkv, float *probabilities) {
  const int size = s->width / s->heads;
  const float factor = 1 / sqrt((float)size);
  for (int i = 0; i < s->batch * s->heads * s->context; i++) {
    const place p = place_of(s, i);
    float *row = probabilities + p.row, largest = 0, sum = 0;
    for (int u = 0; u <= p.t; u++) {
      row[u] = factor * dot(qkv + query_at(s, p, p.t), qkv + query_at(s, p, u) + s->width, size);
      if (u == 0 || row[u] > largest) largest = row[u];
    }
    for (int u = 0; u <= p.t; u++) sum += row[u] = exp(row[u] - largest);
    for (int u = 0; u < s->context; u++) row[u] = u <= p.t ? row[u] / sum : 0;
  }
}

void attention_mix(const attention_shape *s, const float *qkv, const float *probabilities, float *out) {
  memset(out, 0, (size_t)s->batch * s->context * s->width * sizeof *out);
  for (int i = 0; i < s->batch * s->heads * s->context; i++) {
    const place p = place_of(s, i);
    for (int u = 0; u <= p.t; u++) {
      add(out + p.mixed, qkv + query_at(s, p, u) + 2 * s->width, probabilities[p.row + u], s->width / s->heads);
    }
  }
}

void attention_backward(const attention_shape *s, const float *dout, const float *qkv, const float *probabilities,
                        float *dqkv) {
  const int size = s->width / s->heads;
  const float factor = 1 / sqrt((float)size);
  memset(dqkv, 0, (size_t)s->batch * s->context * 3 * s->width * sizeof *dqkv);
  /* A token's query, and what it asks of the keys and values before it. */
  for (int i = 0; i < s->batch * s->heads * s->context; i++) {
    const place p = place_of(s, i);
    const size_t query = query_at(s, p, p.t);
    const float *d = dout + p.mixed, *row = probabilities + p.row;
    float mean = 0;
    for (int u = 0; u <= p.t; u++) mean += row[u] * dot(d, qkv + query_at(s, p, u) + 2 * s->width, size);
    for (int u = 0; u <= p.t; u++) {
      const size_t key = query_at(s, p, u) + s->width, value = key + s->width;
      const float score = factor * row[u] * (dot(d, qkv + value, size) - mean);
      add(dqkv + query, qkv + key, score, size);
      add(dqkv + key, qkv + query, score, size);
      add(dqkv + value, d, row[u], size);
    }
  }
}

double cross_entropy(float *logits, const unsigned char *targets, float weight, int rows, int classes) {
  double loss = 0;
  for (int i = 0; i < rows; i++, logits += classes) {
    float largest = logits[0], sum = 0;
    for (int j = 1; j < classes; j++) largest = logits[j] > largest ? logits[j] : largest;
    const float target = logits[targets[i]] - largest;
    for (int j = 0; j < classes; j++) sum += logits[j] = exp(logits[j] - largest);
    loss += log((double)sum) - target;
    for (int j = 0; j < classes; j++) logits[j] = weight * (logits[j] / sum - (j == targets[i] ? 1 : 0));
  }
  return loss;
}
