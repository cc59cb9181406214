/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that was compiled with the header of an older or newer version (other_versions.py), and runs with this one:
 * argv[1], through <gradscaler/loader.h>. It trains with every struct that has struct_size, looks for writes beyond what
 * it knows, and, if it is newer (GSC_TEST_NEWER), sets fields that the library does not know.
 */
#include <gradscaler/loader.h>

#define STEPS 60
#define COUNT 100
#define CHECK(condition)                                                                      \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "%s:%d: %s is false\n%s\n", __FILE__, __LINE__, #condition, message()); \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)
#define OK(call) CHECK((call) == GSC_OK)

/* A struct that the library fills in, and bytes that are not its own. */
#define FILL 0x5a
#define OUT(type, name)             \
  struct {                          \
    type s;                         \
    unsigned char after[256];       \
  } name;                           \
  memset(&name, FILL, sizeof name); \
  name.s.struct_size = (uint32_t)sizeof name.s
#define CHECK_OUT(name) CHECK(name.s.struct_size == sizeof name.s && is_filled(name.after, sizeof name.after))

/* A field that only a newer program knows. The library leaves 0 in it, and refuses other values. */
#ifdef GSC_TEST_NEWER
#define CHECK_LATER(struct_) CHECK((struct_).later == 0)
#define CHECK_REFUSED(struct_, name, call)                                                                       \
  do {                                                                                                           \
    (struct_).later = 1;                                                                                         \
    CHECK((call) == GSC_ERROR_UNSUPPORTED && strstr(message(), ": " name " has ") != NULL);                      \
    CHECK(strstr(message(), "the program sets a field that this version of the library does not know") != NULL); \
    (struct_).later = 0;                                                                                         \
  } while (0)
#else
#define CHECK_LATER(struct_)
#define CHECK_REFUSED(struct_, name, call)
#endif

static gsc_library library;
#define api library.api

static const char *message(void) { return api != NULL ? api->error_get_message() : ""; }

static int is_filled(const unsigned char *bytes, size_t count) {
  size_t i;
  for (i = 0; i < count && bytes[i] == FILL; ++i) {
  }
  return i == count;
}

static int logged, reduced;
static void count_log(void *user, int32_t level, const char *text) {
  CHECK(user == &logged && level >= GSC_LOG_ERROR && text[0] != '\0');
  ++logged;
}
static int32_t reduce_one_rank(void *user, double *values, int64_t count, gsc_stream stream) {
  (void)user;
  (void)values;
  (void)stream;
  CHECK(count == 2);
  ++reduced;
  return 0;
}

static gsc_context *open_context(void) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  gsc_context *context = NULL;
  int32_t threads = 0;
  OUT(gsc_context_options, defaults);
  OK(api->context_options_init(&defaults.s, (uint32_t)sizeof defaults.s));
  CHECK_OUT(defaults);
  CHECK(memcmp(&defaults.s, &options, sizeof options) == 0);
  options.num_threads = 2;
  options.log = count_log;
  options.log_user = &logged;
  CHECK_REFUSED(options, "options", api->context_create(&options, &context));
  OK(api->context_create(&options, &context));
  OK(api->context_get_cpu(context, NULL, &threads));
  CHECK(threads == 2 && logged > 0);
  return context;
}

static void read_device(void) {
  OUT(gsc_device_info, info);
  OK(api->device_get_info(GSC_DEVICE_CPU, 0, &info.s));
  CHECK_OUT(info);
  CHECK_LATER(info.s);
  CHECK(info.s.device_type == GSC_DEVICE_CPU && info.s.units >= 1);
}

static void read_error(void) {
  OUT(gsc_error, error);
  CHECK(api->context_create(NULL, NULL) == GSC_ERROR_INVALID_ARGUMENT);
  OK(api->error_get_last(&error.s));
  CHECK_OUT(error);
  CHECK_LATER(error.s);
  CHECK(error.s.status == GSC_ERROR_INVALID_ARGUMENT && strcmp(error.s.function, "gsc_context_create") == 0);
  CHECK(strcmp(error.s.argument, "out_context") == 0 && error.s.field[0] == '\0');
}

static gsc_scaler *make_scaler(gsc_context *context) {
  gsc_scaler_options options = GSC_SCALER_OPTIONS_INIT;
  gsc_scaler *scaler = NULL;
  OUT(gsc_scaler_options, got);
  options.init_scale = 1024.0f;
  options.growth_interval = 10;
  options.floor_action = GSC_FLOOR_REPORT;
  CHECK_REFUSED(options, "options", api->scaler_create(context, &options, &scaler));
  OK(api->scaler_create(context, &options, &scaler));
  OK(api->scaler_get_options(scaler, &got.s));
  CHECK_OUT(got);
  CHECK_LATER(got.s);
  CHECK(memcmp(&got.s, &options, offsetof(gsc_scaler_options, floor_action)) == 0);
  CHECK(got.s.floor_action == GSC_FLOOR_REPORT && got.s.floor_patience == 1);
  got.s.growth_factor = 4.0;
  CHECK_REFUSED(got.s, "options", api->scaler_set_options(scaler, &got.s, NULL));
  OK(api->scaler_set_options(scaler, &got.s, NULL)); /* with the history that it was created with */
  OK(api->scaler_options_init(&got.s, (uint32_t)sizeof got.s, GSC_PRESET_MEGATRON));
  CHECK_OUT(got);
  CHECK(got.s.hysteresis == 2);
  return scaler;
}

static gsc_optimizer *make_optimizer(gsc_context *context, gsc_tensor_list *params, gsc_tensor_list *grads) {
  gsc_optimizer *optimizer = NULL;
  int32_t group = 0;
  OUT(gsc_optimizer_options, options);
  OK(api->optimizer_options_init(&options.s, (uint32_t)sizeof options.s, GSC_ADAMW));
  CHECK_OUT(options);
  CHECK_LATER(options.s);
  CHECK(options.s.beta1 == 0.9 && options.s.weight_decay == 1e-2);
  options.s.lr = 0.1;
  options.s.weight_decay = 0.0;
  CHECK_REFUSED(options.s, "options",
                api->optimizer_create(context, &options.s, params, grads, NULL, NULL, 0, &optimizer));
  OK(api->optimizer_create(context, &options.s, params, grads, NULL, NULL, 0, &optimizer));
  CHECK_REFUSED(options.s, "options", api->optimizer_add_group(optimizer, 1, 1, &options.s, &group));
  OK(api->optimizer_add_group(optimizer, 1, 1, &options.s, &group));
  options.s.lr = 0.05;
  CHECK_REFUSED(options.s, "options", api->optimizer_set_options(optimizer, group, &options.s, NULL));
  OK(api->optimizer_set_options(optimizer, group, &options.s, NULL));
  memset(&options, FILL, sizeof options);
  options.s.struct_size = (uint32_t)sizeof options.s;
  OK(api->optimizer_get_options(optimizer, group, &options.s));
  CHECK_OUT(options);
  CHECK_LATER(options.s);
  CHECK(options.s.kind == GSC_ADAMW && options.s.lr == 0.05);
  return optimizer;
}

/* Takes every weight to 3. Each tenth step overflows and is skipped. */
static void train(gsc_scaler *scaler, gsc_optimizer *optimizer, gsc_tensor_list *grad_list, float *weights,
                  float *grads) {
  gsc_reducer reducer;
  float scale = 0;
  int i, step;
  memset(&reducer, 0, sizeof reducer);
  reducer.struct_size = (uint32_t)sizeof reducer;
  reducer.all_reduce = reduce_one_rank;
  CHECK_REFUSED(reducer, "reducer", api->scaler_set_reducer(scaler, &reducer));
  OK(api->scaler_set_reducer(scaler, &reducer));
  for (step = 1; step <= STEPS; ++step) {
    OUT(gsc_report, report);
    OUT(gsc_report, async);
    OK(api->scaler_get_scale_sync(scaler, &scale, NULL));
    for (i = 0; i < 2 * COUNT; ++i) grads[i] = (weights[i] - 3.0f) * scale;
    if (step % 10 == 0) grads[7] = 1e38f * 1e38f;
    OK(api->scaler_step(scaler, optimizer, NULL));
    OK(api->scaler_update(scaler, NULL));
    OK(api->scaler_get_report_sync(scaler, grad_list, &report.s, NULL));
    OK(api->scaler_read_report_async(scaler, grad_list, &async.s, NULL));
    CHECK_OUT(report);
    CHECK_LATER(report.s);
    CHECK_OUT(async);
    CHECK_LATER(async.s);
    CHECK(memcmp(&report.s, &async.s, sizeof report.s) == 0);
    CHECK(report.s.updates == step && report.s.skipped == step / 10);
    CHECK(((report.s.flags & GSC_REPORT_OVERFLOW) != 0) == (step % 10 == 0));
  }
  CHECK(reduced == STEPS);
  OK(api->scaler_set_reducer(scaler, NULL));
  for (i = 0; i < 2 * COUNT; ++i) CHECK(weights[i] > 2.0f && weights[i] < 4.0f);
}

static void save_and_restore(gsc_scaler *scaler, gsc_optimizer *optimizer) {
  int64_t bytes = 0, applied = 0;
  void *image;
  float before = 0, after = 0;
  OUT(gsc_scaler_state, state);
  OUT(gsc_device_state, words);
  OK(api->scaler_get_state_sync(scaler, &state.s, NULL));
  CHECK_OUT(state);
  CHECK_LATER(state.s);
  OK(api->optimizer_get_save_size(optimizer, &bytes));
  image = malloc((size_t)bytes);
  CHECK(image != NULL);
  OK(api->optimizer_save_sync(optimizer, image, bytes, NULL));
  OK(api->scaler_get_scale_sync(scaler, &before, NULL));
  OK(api->scaler_set_scale(scaler, before / 2, NULL));
  CHECK_REFUSED(state.s, "state", api->scaler_set_state(scaler, &state.s, NULL));
  OK(api->scaler_set_state(scaler, &state.s, NULL));
  OK(api->scaler_get_scale_sync(scaler, &after, NULL));
  CHECK(before == after);
  OK(api->optimizer_load_sync(optimizer, image, bytes, NULL));
  OK(api->optimizer_get_steps_sync(optimizer, &applied, NULL, NULL));
  CHECK(applied == STEPS - STEPS / 10);
  free(image);
  OK(api->scaler_get_device_state(scaler, NULL, &words.s));
  CHECK_OUT(words);
  CHECK_LATER(words.s);
  CHECK(*words.s.scale == after && *words.s.inv_scale == 1.0f / after);
}

int main(int argc, char **argv) {
  static float weights[2 * COUNT], grads[2 * COUNT];
  gsc_tensor p[2], g[2];
  gsc_tensor_list *params = NULL, *grad_list = NULL;
  gsc_context *context;
  gsc_optimizer *optimizer;
  gsc_scaler *scaler;
  char why[1024];
  int i;
  if (argc != 2 || !gsc_library_open(&library, argv[1], why, sizeof why)) {
    fprintf(stderr, "%s\n", argc == 2 ? why : "usage: version_test libgradscaler.so");
    return 2;
  }
  for (i = 0; i < 2; ++i) {
    const gsc_tensor tensor = GSC_TENSOR_INIT(NULL, COUNT, GSC_FP32);
    p[i] = g[i] = tensor;
    p[i].data = weights + i * COUNT;
    g[i].data = grads + i * COUNT;
  }
  read_device();
  read_error();
  context = open_context();
  OK(api->tensor_list_create(context, p, 2, NULL, &params));
  OK(api->tensor_list_create(context, g, 2, NULL, &grad_list));
  optimizer = make_optimizer(context, params, grad_list);
  scaler = make_scaler(context);
  train(scaler, optimizer, grad_list, weights, grads);
  save_and_restore(scaler, optimizer);
  api->context_destroy(context);
  api->tensor_list_destroy(params);
  api->tensor_list_destroy(grad_list);
  api->optimizer_destroy(optimizer);
  api->scaler_destroy(scaler);
  printf("structs of %d, %d, %d bytes: weights are %.6f and %.6f\n", (int)sizeof(gsc_context_options),
         (int)sizeof(gsc_scaler_options), (int)sizeof(gsc_optimizer_options), (double)weights[0],
         (double)weights[COUNT]);
  gsc_library_close(&library);
  return 0;
}
