/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward and backward pass. Every value that a layer hands on is rounded to the network's dtype: it is unpacked to fp32
 * before a product and packed after it.
 */
#include "mlp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "product.h"
#include "random.h"

const int mlp_widths[MLP_LAYERS + 1] = {DIGITS_PIXELS, 64, 64, DIGITS_CLASSES};
const char *const mlp_tensor_names[MLP_TENSORS] = {"layer0.weight", "layer0.bias",   "layer1.weight",
                                                   "layer1.bias",   "layer2.weight", "layer2.bias"};

enum { WIDEST = 64 };

static int64_t tensor_count(int i) {
  const int layer = i / 2;
  return i % 2 == 0 ? (int64_t)mlp_widths[layer] * mlp_widths[layer + 1] : mlp_widths[layer + 1];
}

/* The first `count` elements of a stored tensor in fp32. */
static void unpack(const mlp *m, const gsc_tensor *stored, int64_t count, float *out) {
  tensor_cast(m->device, tensor_first(stored, count), tensor_of(out, count));
}

static void pack(const mlp *m, float *values, int64_t count, const gsc_tensor *stored) {
  tensor_cast(m->device, tensor_of(values, count), tensor_first(stored, count));
}

void mlp_create(mlp *m, const device *d, int32_t dtype, int max_rows) {
  const size_t room = (size_t)(max_rows > WIDEST ? max_rows : WIDEST) * WIDEST;
  memset(m, 0, sizeof *m);
  m->device = d;
  m->dtype = dtype;
  m->max_rows = max_rows;
  for (int i = 0; i < MLP_TENSORS; i++) {
    m->weights[i] = tensor_make(dtype, tensor_count(i));
    m->grads[i] = tensor_make(dtype, tensor_count(i));
  }
  for (int i = 0; i <= MLP_LAYERS; i++) m->activations[i] = tensor_make(dtype, (int64_t)max_rows * mlp_widths[i]);
  for (int i = 0; i < MLP_LAYERS; i++) m->deltas[i] = tensor_make(dtype, (int64_t)max_rows * mlp_widths[i + 1]);
  m->left = allocate(room, sizeof *m->left);
  m->right = allocate(room, sizeof *m->right);
  m->result = allocate(room, sizeof *m->result);
}

void mlp_destroy(mlp *m) {
  for (int i = 0; i < MLP_TENSORS; i++) {
    tensor_free(&m->weights[i]);
    tensor_free(&m->grads[i]);
  }
  for (int i = 0; i <= MLP_LAYERS; i++) tensor_free(&m->activations[i]);
  for (int i = 0; i < MLP_LAYERS; i++) tensor_free(&m->deltas[i]);
  free(m->left);
  free(m->right);
  free(m->result);
}

void mlp_initial_values(uint64_t seed, gsc_tensor values[MLP_TENSORS]) {
  random_source random = random_make(seed, 1);
  for (int layer = 0; layer < MLP_LAYERS; layer++) {
    float *matrix = values[2 * layer].data;
    const float spread = sqrtf(2.0f / (float)mlp_widths[layer]);
    for (int64_t i = 0; i < values[2 * layer].count; i++) matrix[i] = spread * random_normal(&random);
    memset(values[2 * layer + 1].data, 0, (size_t)values[2 * layer + 1].count * sizeof(float));
  }
}

void mlp_forward(mlp *m, const float *pixels, int rows) {
  memcpy(m->left, pixels, (size_t)rows * DIGITS_PIXELS * sizeof *pixels);
  pack(m, m->left, (int64_t)rows * DIGITS_PIXELS, &m->activations[0]);
  for (int layer = 0; layer < MLP_LAYERS; layer++) {
    const int in = mlp_widths[layer], out = mlp_widths[layer + 1];
    float bias[WIDEST];
    unpack(m, &m->activations[layer], (int64_t)rows * in, m->left);
    unpack(m, &m->weights[2 * layer], (int64_t)in * out, m->right);
    unpack(m, &m->weights[2 * layer + 1], out, bias);
    product(m->left, m->right, m->result, rows, in, out);
    for (int i = 0; i < rows; i++) {
      for (int j = 0; j < out; j++) {
        const float z = m->result[i * out + j] + bias[j];
        m->result[i * out + j] = layer < MLP_LAYERS - 1 && z < 0.0f ? 0.0f : z;
      }
    }
    pack(m, m->result, (int64_t)rows * out, &m->activations[layer + 1]);
  }
}

double mlp_loss(mlp *m, const int *labels, int rows, float magnitude, float *gradient) {
  double loss = 0.0;
  unpack(m, &m->activations[MLP_LAYERS], (int64_t)rows * DIGITS_CLASSES, gradient);
  for (int i = 0; i < rows; i++) {
    float *row = gradient + i * DIGITS_CLASSES;
    float largest = row[0], sum = 0.0f;
    for (int j = 1; j < DIGITS_CLASSES; j++) largest = row[j] > largest ? row[j] : largest;
    for (int j = 0; j < DIGITS_CLASSES; j++) {
      row[j] = expf(row[j] - largest);
      sum += row[j];
    }
    loss -= log((double)row[labels[i]] / sum + 1e-12);
    for (int j = 0; j < DIGITS_CLASSES; j++) {
      row[j] = (row[j] / sum - (j == labels[i] ? 1.0f : 0.0f)) / (float)rows * magnitude;
    }
  }
  return loss / rows * magnitude;
}

gsc_tensor mlp_first_delta(const mlp *m, int rows) {
  return tensor_first(&m->deltas[MLP_LAYERS - 1], (int64_t)rows * DIGITS_CLASSES);
}

/* Gradients of one layer's matrix and bias; leaves the unpacked delta in m->right. */
static void layer_gradients(mlp *m, int layer, int rows) {
  const int in = mlp_widths[layer], out = mlp_widths[layer + 1];
  float bias[WIDEST] = {0.0f};
  unpack(m, &m->activations[layer], (int64_t)rows * in, m->result);
  transpose(m->result, m->left, rows, in);
  unpack(m, &m->deltas[layer], (int64_t)rows * out, m->right);
  product(m->left, m->right, m->result, in, rows, out);
  pack(m, m->result, (int64_t)in * out, &m->grads[2 * layer]);
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < out; j++) bias[j] += m->right[i * out + j];
  }
  pack(m, bias, out, &m->grads[2 * layer + 1]);
}

/* The delta of the layer below, from the delta in m->right. */
static void propagate(mlp *m, int layer, int rows) {
  const int in = mlp_widths[layer], out = mlp_widths[layer + 1];
  unpack(m, &m->weights[2 * layer], (int64_t)in * out, m->result);
  transpose(m->result, m->left, in, out);
  product(m->right, m->left, m->result, rows, out, in);
  unpack(m, &m->activations[layer], (int64_t)rows * in, m->left);
  for (int i = 0; i < rows * in; i++) {
    if (!(m->left[i] > 0.0f)) m->result[i] = 0.0f;
  }
  pack(m, m->result, (int64_t)rows * in, &m->deltas[layer - 1]);
}

void mlp_backward(mlp *m, int rows) {
  for (int layer = MLP_LAYERS - 1; layer >= 0; layer--) {
    layer_gradients(m, layer, rows);
    if (layer > 0) propagate(m, layer, rows);
  }
}

double mlp_accuracy(mlp *m, const dataset *test) {
  int right = 0;
  for (int first = 0; first < test->count; first += m->max_rows) {
    const int rows = test->count - first < m->max_rows ? test->count - first : m->max_rows;
    mlp_forward(m, test->pixels + (size_t)first * DIGITS_PIXELS, rows);
    unpack(m, &m->activations[MLP_LAYERS], (int64_t)rows * DIGITS_CLASSES, m->result);
    for (int i = 0; i < rows; i++) {
      const float *logits = m->result + i * DIGITS_CLASSES;
      int best = 0;
      for (int j = 1; j < DIGITS_CLASSES; j++) best = logits[j] > logits[best] ? j : best;
      right += best == test->labels[first + i];
    }
  }
  return (double)right / test->count;
}
