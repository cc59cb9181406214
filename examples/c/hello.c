/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest training loop, on gradients that fp16 cannot hold: the loss is 1e-8 * |w|^2, so its gradient is 2e-8 * w,
 * and half of fp16's smallest number is 3e-8. Unscaled, every one of them would be flushed to zero. The first
 * lines of main are the example of the README. It links the library; digits/ loads it at run time instead.
 */
#include <gradscaler/gradscaler.h>
#include <math.h>
#include <stdio.h>

static float w[3] = {1.0f, -0.5f, 0.75f}; /* fp32 master weights */
static float exact[3];                    /* gradients as computed */
static uint16_t rounded[3];               /* gradients as stored: fp16 */
static gsc_tensor weights = GSC_TENSOR_INIT(w, 3, GSC_FP32), full = GSC_TENSOR_INIT(exact, 3, GSC_FP32),
                  half = GSC_TENSOR_INIT(rounded, 3, GSC_FP16);

static void backward(void) {
  for (int i = 0; i < 3; ++i) exact[i] = 2e-8f * w[i];
}

int main(void) {
  gsc_context *ctx;
  gsc_tensor_list *params, *grads;
  gsc_optimizer *adamw;
  gsc_scaler *scaler;
  gsc_context_create(NULL, &ctx);                          /* the CPU, all its threads */
  gsc_tensor_list_create(ctx, &weights, 1, NULL, &params); /* lists over your buffers */
  gsc_tensor_list_create(ctx, &half, 1, NULL, &grads);
  gsc_optimizer_create(ctx, NULL, params, grads, NULL, NULL, 0, &adamw);
  gsc_scaler_create(ctx, NULL, &scaler); /* PyTorch's defaults: the scale is 65536 */
  for (int step = 0; step < 5000; ++step) {
    backward();                                      /* yours */
    gsc_scaler_scale(scaler, &full, &half, 1, NULL); /* times the scale, then rounded to fp16 */
    gsc_scaler_step(scaler, adamw, NULL);            /* unscale and apply; skipped if one is inf or NaN */
    gsc_scaler_update(scaler, NULL);                 /* grow the scale, or back off */
  }

  float scale = 0.0f;
  gsc_scaler_get_scale_sync(scaler, &scale, NULL);
  printf("w = %.4f %.4f %.4f, scale = %.0f\n", w[0], w[1], w[2], scale);
  gsc_scaler_destroy(scaler);
  gsc_optimizer_destroy(adamw);
  gsc_tensor_list_destroy(grads);
  gsc_tensor_list_destroy(params);
  gsc_context_destroy(ctx);

  /* Every failure leaves a message; here one look at the end is enough. */
  if (gsc_error_get_message()[0] != '\0') {
    fprintf(stderr, "%s\n", gsc_error_get_message());
    return 1;
  }
  return fabsf(w[0]) < 0.1f && fabsf(w[1]) < 0.1f && fabsf(w[2]) < 0.1f ? 0 : 1;
}
