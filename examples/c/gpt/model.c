/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward and backward pass. keep() is where values are rounded: it stores them in the model's dtype and takes them back.
 */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "product.h"
#include "random.h"

/* Places in the list of tensors. */
enum { EMBEDDING = 0, POSITIONS = 1 };
enum { QKV, PROJECTION, HIDDEN, OUTPUT };
enum { GAIN1, BIAS1, QKV_BIAS, PROJECTION_BIAS, GAIN2, BIAS2, HIDDEN_BIAS, OUTPUT_BIAS };
static int matrix(int layer, int which) { return 2 + MATRICES_PER_LAYER * layer + which; }
static int vector(const gpt *m, int layer, int which) { return m->matrices + VECTORS_PER_LAYER * layer + which; }

static int rows_of(const gpt *m) { return m->batch * m->shape.context; }
static attention_shape attention_of(const gpt *m) {
  const attention_shape s = {m->batch, m->shape.context, m->shape.heads, m->shape.width};
  return s;
}

static void store(const gpt *m, float *values, gsc_tensor to) {
  tensor_cast(m->device, tensor_of(values, to.count), to);
}
static void load(const gpt *m, gsc_tensor from, float *values) {
  tensor_cast(m->device, from, tensor_of(values, from.count));
}
static void keep(const gpt *m, float *values, gsc_tensor in) {
  store(m, values, in);
  load(m, in, values);
}
/* Rounds a gradient that is passed on. */
static void pass(const gpt *m, float *values, int64_t count) { keep(m, values, tensor_first(&m->passing, count)); }

static void add_tensor(gpt *m, int at, int64_t count, const char *name, int layer) {
  m->weights[at] = tensor_make(m->dtype, count);
  m->grads[at] = tensor_make(m->dtype, count);
  if (layer >= 0) snprintf(m->names[at], sizeof m->names[at], "layer%d.%s", layer, name);
  if (layer < 0) snprintf(m->names[at], sizeof m->names[at], "%s", name);
}

static void make_parameters(gpt *m) {
  static const char *const matrices[] = {"qkv", "projection", "hidden", "output"};
  static const char *const vectors[] = {"norm1.gain", "norm1.bias", "qkv.bias",    "projection.bias",
                                        "norm2.gain", "norm2.bias", "hidden.bias", "output.bias"};
  static const int matrix_size[] = {3, 1, 4, 4}, vector_size[] = {1, 1, 3, 1, 1, 1, 4, 1};
  const int64_t width = m->shape.width;
  m->matrices = 2 + MATRICES_PER_LAYER * m->shape.layers;
  m->tensors = m->matrices + VECTORS_PER_LAYER * m->shape.layers + 2;
  add_tensor(m, EMBEDDING, BYTES * width, "embedding", -1);
  add_tensor(m, POSITIONS, m->shape.context * width, "positions", -1);
  for (int layer = 0; layer < m->shape.layers; layer++) {
    for (int i = 0; i < MATRICES_PER_LAYER; i++) {
      add_tensor(m, matrix(layer, i), matrix_size[i] * width * width, matrices[i], layer);
    }
    for (int i = 0; i < VECTORS_PER_LAYER; i++) {
      add_tensor(m, vector(m, layer, i), vector_size[i] * width, vectors[i], layer);
    }
  }
  add_tensor(m, m->tensors - 2, width, "norm.gain", -1);
  add_tensor(m, m->tensors - 1, width, "norm.bias", -1);
}

void gpt_create(gpt *m, const device *d, const gpt_shape *shape, int32_t dtype, int batch) {
  memset(m, 0, sizeof *m);
  m->device = d;
  m->shape = *shape;
  m->dtype = dtype;
  m->batch = batch;
  make_parameters(m);
  const int64_t rows = rows_of(m), width = shape->width, scores = rows * shape->heads * shape->context;
  for (int i = 0; i < shape->layers; i++) {
    layer_activations *l = &m->layers[i];
    l->input = tensor_make(dtype, rows * width);
    l->normed = tensor_make(dtype, rows * width);
    l->qkv = tensor_make(dtype, rows * 3 * width);
    l->probabilities = tensor_make(dtype, scores);
    l->mixed = tensor_make(dtype, rows * width);
    l->middle = tensor_make(dtype, rows * width);
    l->normed2 = tensor_make(dtype, rows * width);
    l->hidden = tensor_make(dtype, rows * 4 * width);
    l->active = tensor_make(dtype, rows * 4 * width);
  }
  m->output = tensor_make(dtype, rows * width);
  m->normed = tensor_make(dtype, rows * width);
  m->logits = tensor_make(dtype, rows * BYTES);
  m->first_delta = tensor_make(dtype, rows * BYTES);
  m->tokens = allocate((size_t)rows, 1);
  /* The largest of: activations, a matrix, and what linear_backward needs for both transposed. */
  int64_t most = rows * 4 * width + 4 * width * width;
  if (most < rows * BYTES + BYTES * width) most = rows * BYTES + BYTES * width;
  if (most < scores) most = scores;
  m->passing = tensor_make(dtype, most);
  for (int i = 0; i < 8; i++) m->room[i] = allocate((size_t)most, sizeof(float));
}

void gpt_destroy(gpt *m) {
  for (int i = 0; i < m->tensors; i++) {
    tensor_free(&m->weights[i]);
    tensor_free(&m->grads[i]);
  }
  for (int i = 0; i < m->shape.layers; i++) {
    layer_activations *l = &m->layers[i];
    gsc_tensor *all[] = {&l->input,  &l->normed,  &l->qkv,    &l->probabilities, &l->mixed,
                         &l->middle, &l->normed2, &l->hidden, &l->active};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) tensor_free(all[k]);
  }
  tensor_free(&m->output);
  tensor_free(&m->normed);
  tensor_free(&m->logits);
  tensor_free(&m->first_delta);
  tensor_free(&m->passing);
  free(m->tokens);
  for (int i = 0; i < 8; i++) free(m->room[i]);
}

void gpt_initial_values(const gpt *m, uint64_t seed, gsc_tensor *values) {
  random_source random = random_make(seed, 1);
  for (int i = 0; i < m->tensors; i++) {
    float *to = values[i].data;
    const size_t length = strlen(m->names[i]);
    const int is_gain = length > 4 && strcmp(m->names[i] + length - 4, "gain") == 0;
    /* What is added to the stream of all layers starts smaller, so that the stream does not grow with them. */
    const int is_added = i >= 2 && i < m->matrices && (i - 2) % MATRICES_PER_LAYER % 2 == 1;
    const double spread = is_added ? 0.02 / sqrt(2.0 * m->shape.layers) : 0.02;
    for (int64_t k = 0; k < values[i].count; k++) {
      to[k] = i < m->matrices ? (float)(spread * random_normal(&random)) : (float)is_gain;
    }
  }
}

/* out = the linear function of matrix `w` and vector `b`; room[6] and room[7] hold them. */
static void linear(gpt *m, int w, int b, const float *in, float *out, int in_width, int out_width) {
  load(m, m->weights[w], m->room[6]);
  load(m, m->weights[b], m->room[7]);
  linear_forward(in, m->room[6], m->room[7], out, rows_of(m), in_width, out_width);
}

static void norm(gpt *m, int gain, const float *in, float *out) {
  load(m, m->weights[gain], m->room[6]);
  load(m, m->weights[gain + 1], m->room[7]);
  norm_forward(in, m->room[6], m->room[7], out, rows_of(m), m->shape.width);
}

static void embed(gpt *m, float *x) {
  const int width = m->shape.width;
  load(m, m->weights[EMBEDDING], m->room[6]);
  load(m, m->weights[POSITIONS], m->room[7]);
  for (int i = 0; i < rows_of(m); i++) {
    const float *byte = m->room[6] + m->tokens[i] * width, *position = m->room[7] + i % m->shape.context * width;
    for (int j = 0; j < width; j++) x[i * width + j] = byte[j] + position[j];
  }
}

/* x, the stream of all layers, is room[0]. */
static void layer_forward(gpt *m, int i, float *x) {
  layer_activations *l = &m->layers[i];
  const attention_shape s = attention_of(m);
  const int width = m->shape.width, count = rows_of(m) * width;
  float *a = m->room[1], *wide = m->room[2], *scores = m->room[3];
  keep(m, x, l->input);
  norm(m, vector(m, i, GAIN1), x, a);
  keep(m, a, l->normed);
  linear(m, matrix(i, QKV), vector(m, i, QKV_BIAS), a, wide, width, 3 * width);
  keep(m, wide, l->qkv);
  attention_probabilities(&s, wide, scores);
  keep(m, scores, l->probabilities);
  attention_mix(&s, wide, scores, a);
  keep(m, a, l->mixed);
  linear(m, matrix(i, PROJECTION), vector(m, i, PROJECTION_BIAS), a, wide, width, width);
  for (int k = 0; k < count; k++) x[k] += wide[k];
  keep(m, x, l->middle);
  norm(m, vector(m, i, GAIN2), x, a);
  keep(m, a, l->normed2);
  linear(m, matrix(i, HIDDEN), vector(m, i, HIDDEN_BIAS), a, wide, width, 4 * width);
  keep(m, wide, l->hidden);
  gelu_forward(wide, 4 * count);
  keep(m, wide, l->active);
  linear(m, matrix(i, OUTPUT), vector(m, i, OUTPUT_BIAS), wide, a, 4 * width, width);
  for (int k = 0; k < count; k++) x[k] += a[k];
}

void gpt_forward(gpt *m, const unsigned char *tokens, float *logits) {
  const int width = m->shape.width, rows = rows_of(m);
  float *x = m->room[0], *a = m->room[1];
  memcpy(m->tokens, tokens, (size_t)rows);
  embed(m, x);
  for (int i = 0; i < m->shape.layers; i++) layer_forward(m, i, x);
  keep(m, x, m->output);
  norm(m, m->tensors - 2, x, a);
  keep(m, a, m->normed);
  load(m, m->weights[EMBEDDING], m->room[6]);
  transpose(m->room[6], m->room[7], BYTES, width);
  product(a, m->room[7], logits, rows, width, BYTES);
  keep(m, logits, m->logits);
}

/* room[1] becomes the gradient of a linear function's input, from that of its output in room[1]. */
static void linear_gradients(gpt *m, int w, int b, gsc_tensor input, int in_width, int out_width) {
  float *d = m->room[1], *dx = m->room[2], *x = m->room[3], *dweight = m->room[4], *dbias = m->room[7];
  load(m, input, x);
  load(m, m->weights[w], m->room[6]);
  linear_backward(d, x, m->room[6], dx, dweight, dbias, m->room[5], rows_of(m), in_width, out_width);
  store(m, dweight, m->grads[w]);
  store(m, dbias, m->grads[b]);
  pass(m, dx, (int64_t)rows_of(m) * in_width);
  m->room[1] = dx;
  m->room[2] = d;
}

/* The same for a norm; the gradient of its input is added to the stream's, room[0]. */
static void norm_gradients(gpt *m, int gain, gsc_tensor input) {
  float *dx = m->room[2], *x = m->room[3], *dgain = m->room[4], *dbias = m->room[7];
  const int64_t count = (int64_t)rows_of(m) * m->shape.width;
  load(m, input, x);
  load(m, m->weights[gain], m->room[6]);
  norm_backward(m->room[1], x, m->room[6], dx, dgain, dbias, rows_of(m), m->shape.width);
  store(m, dgain, m->grads[gain]);
  store(m, dbias, m->grads[gain + 1]);
  for (int64_t k = 0; k < count; k++) m->room[0][k] += dx[k];
  pass(m, m->room[0], count);
}

static void attention_gradients(gpt *m, const layer_activations *l) {
  const attention_shape s = attention_of(m);
  float *d = m->room[1], *dqkv = m->room[2];
  load(m, l->qkv, m->room[3]);
  load(m, l->probabilities, m->room[4]);
  attention_backward(&s, d, m->room[3], m->room[4], dqkv);
  pass(m, dqkv, l->qkv.count);
  m->room[1] = dqkv;
  m->room[2] = d;
}

static void layer_backward(gpt *m, int i) {
  const layer_activations *l = &m->layers[i];
  const int width = m->shape.width;
  const size_t stream = (size_t)rows_of(m) * width * sizeof(float);
  memcpy(m->room[1], m->room[0], stream);
  linear_gradients(m, matrix(i, OUTPUT), vector(m, i, OUTPUT_BIAS), l->active, 4 * width, width);
  load(m, l->hidden, m->room[3]);
  gelu_backward(m->room[3], m->room[1], (int)l->hidden.count);
  pass(m, m->room[1], l->hidden.count);
  linear_gradients(m, matrix(i, HIDDEN), vector(m, i, HIDDEN_BIAS), l->normed2, width, 4 * width);
  norm_gradients(m, vector(m, i, GAIN2), l->middle);
  memcpy(m->room[1], m->room[0], stream);
  linear_gradients(m, matrix(i, PROJECTION), vector(m, i, PROJECTION_BIAS), l->mixed, width, width);
  attention_gradients(m, l);
  linear_gradients(m, matrix(i, QKV), vector(m, i, QKV_BIAS), l->normed, width, 3 * width);
  norm_gradients(m, vector(m, i, GAIN1), l->input);
}

/* From the logits to the last norm's input; the embedding's gradient, as the output matrix, stays in `embedding`. */
static void head_backward(gpt *m, float *embedding) {
  const int width = m->shape.width, rows = rows_of(m);
  float *d = m->room[2], *x = m->room[3], *d_up = m->room[4];
  load(m, m->first_delta, d);
  load(m, m->normed, x);
  transpose(d, d_up, rows, BYTES);
  product(d_up, x, embedding, BYTES, rows, width);
  load(m, m->weights[EMBEDDING], m->room[6]);
  product(d, m->room[6], m->room[1], rows, BYTES, width);
  pass(m, m->room[1], (int64_t)rows * width);
  memset(m->room[0], 0, (size_t)rows * width * sizeof(float));
  norm_gradients(m, m->tensors - 2, m->output);
}

static void embed_backward(gpt *m, float *embedding) {
  const int width = m->shape.width;
  float *positions = m->room[1];
  memset(positions, 0, (size_t)m->shape.context * width * sizeof *positions);
  for (int i = 0; i < rows_of(m); i++) {
    const float *d = m->room[0] + i * width;
    for (int j = 0; j < width; j++) {
      embedding[m->tokens[i] * width + j] += d[j];
      positions[i % m->shape.context * width + j] += d[j];
    }
  }
  store(m, embedding, m->grads[EMBEDDING]);
  store(m, positions, m->grads[POSITIONS]);
}

void gpt_backward(gpt *m, gpt_gradients_fn ready, void *user) {
  float *embedding = allocate((size_t)BYTES * m->shape.width, sizeof *embedding);
  head_backward(m, embedding);
  ready(user, m->tensors - 2, 2);
  for (int i = m->shape.layers - 1; i >= 0; i--) {
    layer_backward(m, i);
    ready(user, matrix(i, 0), MATRICES_PER_LAYER);
    ready(user, vector(m, i, 0), VECTORS_PER_LAYER);
  }
  embed_backward(m, embedding);
  free(embedding);
  ready(user, EMBEDDING, 2);
}
