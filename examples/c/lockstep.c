/* SPDX-License-Identifier: Apache-2.0
 *
 * A test vector for programs that must agree bit for bit, such as lockstep simulations and replays: a few steps of
 * several optimizers in each format of state, the element-wise operations and norms, over numbers that are made of
 * integers, and a digest of all results. It is the same on every platform, instruction set and number of threads; a
 * version that changes it says so in the changelog. Run it when a program starts, and compare with the other machines,
 * or with kExpected. */
#include <gradscaler/gradscaler.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { kCount = 40000, kSteps = 6 };
static const uint64_t kExpected = UINT64_C(0x54597fb6642ec34b);

static uint16_t weights[kCount], gradients[kCount], copies[kCount];
static float masters[kCount];

/* splitmix64 */
static uint64_t next(uint64_t *state) {
  uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

/* FNV-1a over words, so that the byte order does not matter. */
static void add(uint64_t *digest, uint64_t word) { *digest = (*digest ^ word) * UINT64_C(0x100000001b3); }

/* Formats of state, each with what keeps weights of 16 bits exact; without it weights are fp32, with a copy. */
static const struct {
  int32_t state, master;
} kFormats[] = {{GSC_STATE_FULL, GSC_MASTER_NONE},
                {GSC_STATE_BITS8, GSC_MASTER_SPLIT16},
                {GSC_STATE_BITS16, GSC_MASTER_STOCHASTIC}};
enum { kFormatCount = sizeof kFormats / sizeof kFormats[0] };

/* 1, or 0 if a call fails. */
static int train(gsc_context *context, int32_t kind, int format, uint64_t *digest) {
  const int is_narrow = kFormats[format].master != GSC_MASTER_NONE;
  gsc_tensor p = GSC_TENSOR_INIT(masters, kCount, GSC_FP32), g = GSC_TENSOR_INIT(gradients, kCount, GSC_FP16);
  gsc_tensor w = GSC_TENSOR_INIT(copies, kCount, GSC_BF16);
  gsc_tensor_list *params = NULL, *grads = NULL, *copy = NULL;
  gsc_optimizer *optimizer = NULL;
  gsc_scaler *scaler = NULL;
  gsc_optimizer_options options;
  gsc_scaler_options policy = GSC_SCALER_OPTIONS_INIT;
  uint64_t random = (uint64_t)kind;
  int64_t applied = 0;
  float scale = 0.0f;
  for (int i = 0; i < kCount; ++i) { /* weights in (-1, 1), of fp32 and of bf16 */
    const int32_t integer = (int32_t)(next(&random) >> 40) - (1 << 23);
    uint32_t bits;
    masters[i] = (float)integer / 8388608.0f;
    memcpy(&bits, &masters[i], sizeof bits);
    weights[i] = (uint16_t)(bits >> 16);
  }
  if (is_narrow) {
    p.data = weights;
    p.dtype = GSC_BF16;
  }
  policy.init_scale = 1024.0f;
  policy.growth_interval = 2;
  int good = gsc_optimizer_options_init(&options, sizeof options, kind) == GSC_OK;
  options.weight_decay = 0.0625;
  options.lr = 0.01;
  options.state_format = kFormats[format].state;
  options.master_format = kFormats[format].master;
  good = good && gsc_tensor_list_create(context, &p, 1, NULL, &params) == GSC_OK &&
         gsc_tensor_list_create(context, &g, 1, NULL, &grads) == GSC_OK &&
         (is_narrow || gsc_tensor_list_create(context, &w, 1, NULL, &copy) == GSC_OK) &&
         gsc_optimizer_create(context, &options, params, grads, copy, NULL, 0, &optimizer) == GSC_OK &&
         gsc_scaler_create(context, &policy, &scaler) == GSC_OK;
  for (int step = 0; good && step < kSteps; ++step) {
    for (int i = 0; i < kCount; ++i) { /* fp16 of either sign: subnormals to 2^9 */
      const uint64_t bits = next(&random);
      gradients[i] = (uint16_t)((bits & 0x8000u) | (bits >> 32) % 0x6000u);
    }
    if (step == 3) gradients[kCount - 1] = 0x7c00; /* inf: this step is skipped */
    good = gsc_scaler_clip_grad_norm(scaler, grads, 1.0, GSC_NORM_L2, NULL) == GSC_OK &&
           gsc_scaler_step_and_update(scaler, optimizer, NULL) == GSC_OK;
  }
  good = good && gsc_scaler_get_scale_sync(scaler, &scale, NULL) == GSC_OK &&
         gsc_optimizer_get_steps_sync(optimizer, &applied, NULL, NULL) == GSC_OK;
  add(digest, (uint64_t)applied);
  add(digest, (uint64_t)scale);
  for (int i = 0; i < kCount; ++i) {
    uint32_t bits;
    memcpy(&bits, &masters[i], sizeof bits);
    add(digest, bits);
    add(digest, (uint64_t)weights[i] << 16 | copies[i]);
  }
  gsc_scaler_destroy(scaler);
  gsc_optimizer_destroy(optimizer);
  gsc_tensor_list_destroy(params);
  gsc_tensor_list_destroy(grads);
  gsc_tensor_list_destroy(copy);
  return good;
}

/* Scales, unscales, clips, adds, casts and takes norms, from and to every dtype. 1, or 0 if a call fails. */
static int convert(gsc_context *context, uint64_t *digest) {
  static const int32_t kDtypes[] = {GSC_FP32, GSC_FP16, GSC_BF16, GSC_FP64};
  enum { kDtypeCount = sizeof kDtypes / sizeof kDtypes[0], kOdd = 1003 }; /* not a multiple of any vector */
  static double storage[2 * kDtypeCount][kOdd];                           /* of each dtype: an operand and a result */
  gsc_tensor_list *grads = NULL;
  gsc_scaler *scaler = NULL;
  gsc_scaler_options policy = GSC_SCALER_OPTIONS_INIT;
  gsc_tensor source = GSC_TENSOR_INIT(masters, kOdd, GSC_FP32);
  policy.init_scale = 1024.0f;
  int good = gsc_scaler_create(context, &policy, &scaler) == GSC_OK;
  for (int i = 0; i < kDtypeCount; ++i) {
    gsc_tensor x = GSC_TENSOR_INIT(storage[2 * i], kOdd, kDtypes[i]);
    good = good && gsc_ops_cast(context, &source, &x, 1, NULL) == GSC_OK;
    for (int k = 0; k < kDtypeCount; ++k) {
      gsc_tensor y = GSC_TENSOR_INIT(storage[2 * k + 1], kOdd, kDtypes[k]);
      good = good && gsc_ops_cast(context, &x, &y, 1, NULL) == GSC_OK &&
             gsc_ops_axpby(context, 0.75, &x, -3.0, &y, 1, NULL) == GSC_OK &&
             gsc_scaler_scale(scaler, &y, &y, 1, NULL) == GSC_OK &&
             gsc_tensor_list_create(context, &y, 1, NULL, &grads) == GSC_OK &&
             gsc_scaler_unscale(scaler, grads, NULL) == GSC_OK &&
             gsc_scaler_clip_grad_value(scaler, grads, 1.5, NULL) == GSC_OK &&
             gsc_scaler_update(scaler, NULL) == GSC_OK;
      gsc_tensor_list_destroy(grads);
      grads = NULL;
      double norms[2] = {0.0, 0.0};
      good = good && gsc_ops_norm(context, &y, 1, GSC_NORM_L2, &norms[0], NULL, NULL) == GSC_OK &&
             gsc_ops_norm(context, &y, 1, GSC_NORM_INF, &norms[1], NULL, NULL) == GSC_OK;
      for (int j = 0; j < 2; ++j) {
        uint64_t bits;
        memcpy(&bits, &norms[j], sizeof bits);
        add(digest, bits);
      }
      gsc_tensor result = GSC_TENSOR_INIT(masters, kOdd, GSC_FP32); /* back to words of one size */
      good = good && gsc_ops_cast(context, &y, &result, 1, NULL) == GSC_OK;
      for (int j = 0; j < kOdd; ++j) {
        uint32_t bits;
        memcpy(&bits, &masters[j], sizeof bits);
        add(digest, bits);
      }
    }
  }
  gsc_scaler_destroy(scaler);
  return good;
}

int main(void) {
  static const int32_t kKinds[] = {GSC_ADAMW, GSC_SGD, GSC_LION, GSC_LAMB, GSC_RADAM};
  uint64_t digest = UINT64_C(0xcbf29ce484222325);
  gsc_context *context = NULL;
  int good = gsc_context_create(NULL, &context) == GSC_OK;
  for (size_t i = 0; good && i < sizeof kKinds / sizeof kKinds[0]; ++i) {
    for (int format = 0; good && format < kFormatCount; ++format) good = train(context, kKinds[i], format, &digest);
  }
  good = good && convert(context, &digest);
  gsc_context_destroy(context);
  if (!good) {
    fprintf(stderr, "lockstep: %s\n", gsc_error_get_message());
    return 1;
  }
  printf("%016" PRIx64 "\n", digest);
  if (digest == kExpected) return 0;
  fprintf(stderr, "lockstep: the digest is %016" PRIx64 " elsewhere\n", kExpected);
  return 1;
}
