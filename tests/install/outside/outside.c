/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A user's program, in C, built against an installed gradscaler: one clean training step and one that overflows, with
 * every result checked. Linked to the library, or with USE_DLOPEN through the function table of the library whose path
 * is the first argument. It proves that the installation works; the operations have their own tests.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef USE_DLOPEN
#include <gradscaler/loader.h>
static gsc_library library;
#define CALL(function) library.api->function
#else
#include <gradscaler/gradscaler.h>
#define CALL(function) gsc_##function
#endif

enum { N = 4 };

static int failures = 0;

static void expect(int condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "failed: %s\n", what);
  ++failures;
}

static void expect_ok(gsc_status status, const char *what) {
  if (status == GSC_OK) return;
  fprintf(stderr, "failed: %s: %s\n", what, CALL(error_get_message)());
  ++failures;
}

#define OK(call) expect_ok(call, #call)
#define EXPECT(condition) expect(condition, #condition)

static void train(gsc_context *context) {
  /* A loss whose gradient is `true_grads`; all numbers are exact in fp32. */
  const float true_grads[N] = {0.25f, -0.5f, 1.0f, 2.0f};
  const float before[N] = {1.0f, 2.0f, 3.0f, 4.0f};
  float params[N] = {1.0f, 2.0f, 3.0f, 4.0f};
  float grads[N] = {0.0f, 0.0f, 0.0f, 0.0f};
  float after[N];
  float scale = 0.0f;
  int i;
  gsc_tensor source = GSC_TENSOR_INIT((void *)true_grads, N, GSC_FP32);
  gsc_tensor param = GSC_TENSOR_INIT(params, N, GSC_FP32);
  gsc_tensor grad = GSC_TENSOR_INIT(grads, N, GSC_FP32);
  gsc_tensor_list *param_list = NULL, *grad_list = NULL;
  gsc_optimizer *optimizer = NULL;
  gsc_scaler *scaler = NULL;
  gsc_optimizer_options sgd;
  gsc_scaler_options policy = GSC_SCALER_OPTIONS_INIT;
  gsc_report report = {0};

  OK(CALL(tensor_list_create)(context, &param, 1, NULL, &param_list));
  OK(CALL(tensor_list_create)(context, &grad, 1, NULL, &grad_list));
  OK(CALL(optimizer_options_init)(&sgd, sizeof sgd, GSC_SGD));
  sgd.lr = 0.5;
  OK(CALL(optimizer_create)(context, &sgd, param_list, grad_list, NULL, NULL, 0, &optimizer));
  policy.init_scale = 1024.0f;
  policy.growth_interval = 1;
  OK(CALL(scaler_create)(context, &policy, &scaler));
  if (failures) return;

  /* A clean step: scale, unscale, step, update. */
  OK(CALL(scaler_scale)(scaler, &source, &grad, 1, NULL));
  for (i = 0; i < N; ++i) EXPECT(grads[i] == 1024.0f * true_grads[i]);
  OK(CALL(scaler_unscale)(scaler, grad_list, NULL));
  for (i = 0; i < N; ++i) EXPECT(grads[i] == true_grads[i]);
  OK(CALL(scaler_step)(scaler, optimizer, NULL));
  for (i = 0; i < N; ++i) EXPECT(params[i] == before[i] - 0.5f * true_grads[i]);
  OK(CALL(scaler_update)(scaler, NULL));
  OK(CALL(scaler_get_scale_sync)(scaler, &scale, NULL));
  EXPECT(scale == 2048.0f);

  /* An overflow: nothing moves, and the scale backs off. */
  for (i = 0; i < N; ++i) after[i] = params[i];
  grads[2] = HUGE_VALF;
  OK(CALL(scaler_step)(scaler, optimizer, NULL));
  OK(CALL(scaler_update)(scaler, NULL));
  for (i = 0; i < N; ++i) EXPECT(params[i] == after[i]);
  report.struct_size = sizeof report;
  OK(CALL(scaler_get_report_sync)(scaler, grad_list, &report, NULL));
  EXPECT(report.scale == 1024.0f);
  EXPECT(report.updates == 2);
  EXPECT(report.skipped == 1);
  EXPECT(report.first_element == 2);

  CALL(scaler_destroy)(scaler);
  CALL(optimizer_destroy)(optimizer);
  CALL(tensor_list_destroy)(grad_list);
  CALL(tensor_list_destroy)(param_list);
}

int main(int argc, char **argv) {
  gsc_context *context = NULL;
  char version[32];
#ifdef USE_DLOPEN
  char message[1024];
  if (argc != 2 || !gsc_library_open(&library, argv[1], message, sizeof message)) {
    fprintf(stderr, "cannot open the library: %s\n", argc == 2 ? message : "no path given");
    return 1;
  }
#else
  (void)argc;
  (void)argv;
#endif
  snprintf(version, sizeof version, "%d.%d.%d", GSC_VERSION_MAJOR, GSC_VERSION_MINOR, GSC_VERSION_PATCH);
  EXPECT(strcmp(CALL(library_get_version)(), version) == 0);
  OK(CALL(context_create)(NULL, &context));
  if (!failures) train(context);
  CALL(context_destroy)(context);
  printf("gradscaler %s: %s\n", CALL(library_get_version)(), failures ? "failed" : "as expected");
#ifdef USE_DLOPEN
  gsc_library_close(&library);
#endif
  return failures != 0;
}
