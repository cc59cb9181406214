/* SPDX-License-Identifier: Apache-2.0 */
/* The code of docs/c.md that is in no example; page_snippets.py finds it here word for word. It loads the library that
 * GRADSCALER_LIBRARY names, and links it too. */
#include <gradscaler/gradscaler.h>
#include <gradscaler/loader.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

static int fail(const char *message) {
  fprintf(stderr, "%s\n", message);
  return 1;
}

static int load(void) {
  gsc_context *ctx = NULL;

  gsc_library library;
  char message[1024];
  if (!gsc_library_open(&library, NULL, message, sizeof message)) return fail(message); /* lists every path it tried */
  library.api->context_create(NULL, &ctx);

  const bool created = ctx != NULL;
  library.api->context_destroy(ctx);
  gsc_library_close(&library);
  return created ? 0 : fail("no context");
}

/* One step whose gradients have norm 5 at the first scale, of SGD with learning rate 1, and one that overflows. */
static int clip(void) {
  float w[2] = {0.0f, 0.0f}, g[2] = {3.0f * 65536.0f, 4.0f * 65536.0f};
  gsc_tensor weights = GSC_TENSOR_INIT(w, 2, GSC_FP32), gradients = GSC_TENSOR_INIT(g, 2, GSC_FP32);
  gsc_context *ctx = NULL;
  gsc_tensor_list *params = NULL, *grads = NULL;
  gsc_optimizer *adamw = NULL; /* by the page's name */
  gsc_scaler *scaler = NULL;
  gsc_optimizer_options options;
  gsc_optimizer_options_init(&options, sizeof options, GSC_SGD);
  options.lr = 1.0;
  gsc_context_create(NULL, &ctx);
  gsc_tensor_list_create(ctx, &weights, 1, NULL, &params);
  gsc_tensor_list_create(ctx, &gradients, 1, NULL, &grads);
  gsc_optimizer_create(ctx, &options, params, grads, NULL, NULL, 0, &adamw);
  gsc_scaler_create(ctx, NULL, &scaler);
  bool skipped[2] = {false, false};
  for (int step = 0; step < 2; ++step) {
    if (step == 1) g[1] = INFINITY;

    gsc_scaler_clip_grad_norm(scaler, grads, 1.0, GSC_NORM_L2, NULL); /* runs nothing yet: folded into the step */
    gsc_scaler_step_and_update(scaler, adamw, NULL);
    gsc_report report = {.struct_size = sizeof report};
    gsc_scaler_get_report_sync(scaler, grads, &report, NULL);
    if (report.flags & GSC_REPORT_OVERFLOW) printf("skipped: tensor %lld\n", (long long)report.first_tensor);

    skipped[step] = (report.flags & GSC_REPORT_OVERFLOW) != 0;
  }
  gsc_scaler_destroy(scaler);
  gsc_optimizer_destroy(adamw);
  gsc_tensor_list_destroy(grads);
  gsc_tensor_list_destroy(params);
  gsc_context_destroy(ctx);
  const bool clipped = fabsf(w[0] + 0.6f) < 1e-5f && fabsf(w[1] + 0.8f) < 1e-5f;
  return clipped && !skipped[0] && skipped[1] ? 0 : fail("clipped or skipped otherwise");
}

/* Two optimizers over lists of different lengths: the second list of gradients has one tensor, not two. */
static int refused(void) {
  float w[2] = {0.0f, 0.0f};
  gsc_tensor tensors[2] = {GSC_TENSOR_INIT(&w[0], 1, GSC_FP32), GSC_TENSOR_INIT(&w[1], 1, GSC_FP32)};
  gsc_context *ctx = NULL;
  gsc_tensor_list *params = NULL, *grads = NULL;
  gsc_optimizer *adamw = NULL;
  gsc_context_create(NULL, &ctx);
  gsc_tensor_list_create(ctx, tensors, 2, NULL, &params);
  gsc_tensor_list_create(ctx, tensors, 1, NULL, &grads);
  bool named = false;

  if (gsc_optimizer_create(ctx, NULL, params, grads, NULL, NULL, 0, &adamw) != GSC_OK) {
    gsc_error error = {.struct_size = sizeof error};
    gsc_error_get_last(&error);                       /* in fields: error.argument, error.field, error.tensor */
    fprintf(stderr, "%s\n", gsc_error_get_message()); /* in one line */

    named = error.status == GSC_ERROR_INVALID_ARGUMENT && error.argument[0] != '\0';
  }
  gsc_tensor_list_destroy(grads);
  gsc_tensor_list_destroy(params);
  gsc_context_destroy(ctx);
  return named ? 0 : fail("the error has no argument");
}

static int open_device(gsc_context **out) {
  gsc_context *ctx = NULL;

  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_type = GSC_DEVICE_CUDA;
  if (gsc_context_create(&options, &ctx) != GSC_OK) return fail(gsc_error_get_message()); /* names the reason */

  *out = ctx;
  return 0;
}

/* Opens a device if there is one; without one the call has to say so. */
static int cuda(void) {
  gsc_context *ctx = NULL;
  int32_t count = 0;
  gsc_device_get_count(GSC_DEVICE_CUDA, &count);
  const int failed = open_device(&ctx);
  gsc_context_destroy(ctx);
  return failed == (count == 0) ? 0 : fail("a device that is there does not open, or one that is not there does");
}

int main(void) { return load() || clip() || refused() || cuda(); }
