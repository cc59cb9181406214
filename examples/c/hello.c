/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest training loop with 16-bit weights, on gradients that fp16 cannot hold: the loss is 1e-8 * |w|^2, so its
 * gradient is 2e-8 * w, and half of fp16's smallest number is 3e-8. Unscaled, every gradient would be zero. The loop is
 * the example of the README. It links the library; digits/ loads it at run time instead.
 */
#include <gradscaler/gradscaler.h>
#include <math.h>
#include <stdio.h>

enum { n = 3 };
static float master[n] = {1.0f, -0.5f, 0.75f};
static uint16_t weights[n], gradients[n]; /* the bits of fp16 numbers */
static float ones[1] = {1.0f}, loss_gradient[1];

/* Reads the fp16 weights and writes the fp16 gradients, times *from. */
static void backward(gsc_context *ctx, const float *from) {
  float values[n];
  gsc_tensor w = GSC_TENSOR_INIT(weights, n, GSC_FP16), g = GSC_TENSOR_INIT(gradients, n, GSC_FP16),
             wide = GSC_TENSOR_INIT(values, n, GSC_FP32);
  gsc_ops_cast(ctx, &w, &wide, 1, NULL);
  for (int i = 0; i < n; ++i) values[i] *= *from * 2e-8f;
  gsc_ops_cast(ctx, &wide, &g, 1, NULL);
}

int main(void) {
  gsc_tensor p = GSC_TENSOR_INIT(master, n, GSC_FP32);    /* master weights: the optimizer updates these */
  gsc_tensor w = GSC_TENSOR_INIT(weights, n, GSC_FP16);   /* the model's weights: a copy, rounded in the same pass */
  gsc_tensor g = GSC_TENSOR_INIT(gradients, n, GSC_FP16); /* written by the backward pass */
  gsc_tensor one = GSC_TENSOR_INIT(ones, 1, GSC_FP32), seed = GSC_TENSOR_INIT(loss_gradient, 1, GSC_FP32);
  gsc_context *ctx;
  gsc_tensor_list *params, *copy, *grads;
  gsc_optimizer *adamw;
  gsc_scaler *scaler;

  gsc_context_create(NULL, &ctx); /* the CPU, all its threads */
  gsc_tensor_list_create(ctx, &p, 1, NULL, &params);
  gsc_tensor_list_create(ctx, &w, 1, NULL, &copy);
  gsc_tensor_list_create(ctx, &g, 1, NULL, &grads);
  gsc_optimizer_create(ctx, NULL, params, grads, copy, NULL, 0, &adamw); /* AdamW with its defaults */
  gsc_scaler_create(ctx, NULL, &scaler);                                 /* PyTorch's policy, scale 65536 */
  gsc_ops_cast(ctx, &p, &w, 1, NULL);                                    /* the first weights */
  for (int step = 0; step < 5000; ++step) {
    gsc_scaler_scale(scaler, &one, &seed, 1, NULL); /* loss_gradient = 1 * scale, on the device */
    backward(ctx, loss_gradient);                   /* yours: starts from it and fills `gradients` */
    gsc_scaler_step(scaler, adamw, NULL);           /* skipped if a gradient is inf or NaN */
    gsc_scaler_update(scaler, NULL);                /* grows the scale, or backs it off */
  }

  float scale = 0.0f;
  gsc_scaler_get_scale_sync(scaler, &scale, NULL);
  printf("w = %.4f %.4f %.4f, scale = %.0f\n", master[0], master[1], master[2], scale);
  gsc_scaler_destroy(scaler);
  gsc_optimizer_destroy(adamw);
  gsc_tensor_list_destroy(grads);
  gsc_tensor_list_destroy(copy);
  gsc_tensor_list_destroy(params);
  gsc_context_destroy(ctx);

  /* Every failure leaves a message; here one look at the end is enough. */
  if (gsc_error_get_message()[0] != '\0') {
    fprintf(stderr, "%s\n", gsc_error_get_message());
    return 1;
  }
  for (int i = 0; i < n; ++i) {
    if (fabsf(master[i]) >= 0.1f) return 1;
  }
  return 0;
}
