/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the shared library (argv[1]) at run time through <gradscaler/loader.h>, uses it with several threads, unloads
 * it, and checks that it is really gone: 50 times. Then the loader's messages when it fails. It proves that nothing in
 * the library (thread-local destructors, threads, exit handlers, unique symbols) keeps it mapped; not that its results
 * are right, beyond a look at one training step.
 */
#define _POSIX_C_SOURCE 200809L
#include <gradscaler/loader.h>
#include <gradscaler/vulkan.h>
#include <math.h>
#include <pthread.h>
#include <time.h>

#if defined(_WIN32)
#define MISSING "Z:\\nonexistent\\gradscaler.dll"
#define ANOTHER_LIBRARY "kernel32.dll"
#define WHY_MISSING "" /* in the language of the system */
static int set_variable(const char *name, const char *value) { return _putenv_s(name, value); }
#else
#include <dirent.h>
#define MISSING "/nonexistent/libgradscaler.so.1"
#define ANOTHER_LIBRARY "libm.so.6"
#define WHY_MISSING "No such file"
static int set_variable(const char *name, const char *value) { return setenv(name, value, 1); }
#endif

#define ROUNDS 50
#define ELEMENTS 400000
#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

#define OK(call) CHECK((call) == GSC_OK)

static float weights[ELEMENTS], grads[ELEMENTS];

/* Threads of this process, or 0 where there is no /proc. */
static int thread_count(void) {
#if defined(_WIN32)
  return 0;
#else
  int count = 0;
  struct dirent *entry;
  DIR *directory = opendir("/proc/self/task");
  if (directory == NULL) return 0;
  while ((entry = readdir(directory)) != NULL) count += entry->d_name[0] != '.';
  closedir(directory);
  return count;
#endif
}

/* Waits until no more than `limit` threads are left: a joined thread stays listed for a moment. */
static int threads_fall_to(int limit) {
  const struct timespec pause = {0, 1000000};
  int tries;
  for (tries = 0; tries < 5000 && thread_count() > limit; ++tries) nanosleep(&pause, NULL);
  return thread_count() <= limit;
}

/* One step w -= 0.5 * g on four threads; then one that is skipped. */
static void train(const gsc_api *api) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  gsc_optimizer_options sgd;
  gsc_context *context = NULL;
  gsc_tensor_list *params_list = NULL, *grads_list = NULL;
  gsc_optimizer *optimizer = NULL;
  gsc_scaler *scaler = NULL;
  gsc_tensor w = GSC_TENSOR_INIT(NULL, ELEMENTS, GSC_FP32), g = GSC_TENSOR_INIT(NULL, ELEMENTS, GSC_FP32);
  float scale = 0;
  int i, threads_before = thread_count();
  w.data = weights;
  g.data = grads;
  options.num_threads = 4;
  OK(api->optimizer_options_init(&sgd, (uint32_t)sizeof sgd, GSC_SGD));
  sgd.lr = 0.5;
  OK(api->context_create(&options, &context));
  OK(api->tensor_list_create(context, &w, 1, NULL, &params_list));
  OK(api->tensor_list_create(context, &g, 1, NULL, &grads_list));
  OK(api->optimizer_create(context, &sgd, params_list, grads_list, NULL, NULL, 0, &optimizer));
  OK(api->scaler_create(context, NULL, &scaler));
  OK(api->scaler_get_scale_sync(scaler, &scale, NULL));
  for (i = 0; i < ELEMENTS; ++i) {
    weights[i] = (float)(i % 100);
    grads[i] = weights[i] * scale;
  }
  OK(api->scaler_step_and_update(scaler, optimizer, NULL));
  for (i = 0; i < ELEMENTS; ++i) CHECK(weights[i] == 0.5f * (float)(i % 100));
  CHECK(thread_count() == 0 || thread_count() > threads_before); /* or unloading would prove little */
  grads[ELEMENTS - 1] = NAN;
  OK(api->scaler_step_and_update(scaler, optimizer, NULL));
  CHECK(weights[ELEMENTS - 2] == 0.5f * (float)((ELEMENTS - 2) % 100));
  /* A failing call, for its thread-local message. */
  CHECK(api->scaler_update(scaler, NULL) == GSC_ERROR_BAD_STATE && api->error_get_message()[0] != '\0');
  /* Parents first: they live until their children are gone. */
  api->context_destroy(context);
  api->tensor_list_destroy(params_list);
  api->tensor_list_destroy(grads_list);
  api->optimizer_destroy(optimizer);
  api->scaler_destroy(scaler);
}

/* A thread of the caller's that has used the library and is still alive when it is unloaded. */
typedef struct lingering {
  const gsc_api *api;
  pthread_barrier_t used, unloaded;
} lingering;

static void *linger(void *argument) {
  lingering *self = (lingering *)argument;
  CHECK(self->api->context_create(NULL, NULL) == GSC_ERROR_INVALID_ARGUMENT);
  CHECK(self->api->error_get_message()[0] != '\0');
  pthread_barrier_wait(&self->used);
  pthread_barrier_wait(&self->unloaded);
  return NULL;
}

static void *do_nothing(void *argument) { return argument; }

static int is_loaded(const char *path) {
#if defined(_WIN32)
  return GetModuleHandleA(path) != NULL;
#else
  void *handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (handle != NULL) dlclose(handle);
  return handle != NULL;
#endif
}

/* The way to a function that is in no table. */
static void find_experimental(const gsc_library *library) {
  gsc_status (*create)(const gsc_context_options *, const gscx_vulkan_device *, gsc_context **);
  gsc_context *context = NULL;
#if defined(_WIN32)
  *(FARPROC *)&create = GetProcAddress((HMODULE)library->handle, "gscx_context_create_vulkan");
#else
  *(void **)&create = dlsym(library->handle, "gscx_context_create_vulkan");
#endif
  CHECK(create != NULL);
  CHECK(create(NULL, NULL, &context) == GSC_ERROR_INVALID_ARGUMENT && context == NULL);
  CHECK(strstr(library->api->error_get_message(), "device is NULL") != NULL);
}

static void open_use_close(const char *path) {
  gsc_library library;
  char message[1024];
  pthread_t thread;
  lingering other;
  int threads_before = thread_count();
  if (!gsc_library_open(&library, path, message, sizeof message)) {
    fprintf(stderr, "%s\n", message);
    exit(1);
  }
  CHECK(message[0] == '\0' && is_loaded(path));
  CHECK(library.api->abi_version == GSC_ABI_VERSION && library.api->struct_size >= sizeof(gsc_api));
  other.api = library.api;
  CHECK(pthread_barrier_init(&other.used, NULL, 2) == 0 && pthread_barrier_init(&other.unloaded, NULL, 2) == 0);
  CHECK(pthread_create(&thread, NULL, linger, &other) == 0);
  pthread_barrier_wait(&other.used);
  train(library.api);
  find_experimental(&library);
  gsc_library_close(&library);
  CHECK(library.handle == NULL && library.api == NULL);
  CHECK(!is_loaded(path));
  pthread_barrier_wait(&other.unloaded);
  CHECK(pthread_join(thread, NULL) == 0);
  pthread_barrier_destroy(&other.used);
  pthread_barrier_destroy(&other.unloaded);
  CHECK(threads_fall_to(threads_before));
  gsc_library_close(&library); /* nothing happens */
}

/* Objects of a context without threads may outlive the library: nothing runs any more that could touch them. They stay
 * reachable, so that a leak checker has nothing to say. */
static void *volatile left_behind[3];

static void unload_with_live_objects(const char *path) {
  gsc_library library;
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  gsc_context *context = NULL;
  gsc_tensor_list *list = NULL;
  gsc_scaler *scaler = NULL;
  gsc_tensor g = GSC_TENSOR_INIT(NULL, ELEMENTS, GSC_FP32);
  g.data = grads;
  options.num_threads = 1;
  CHECK(gsc_library_open(&library, path, NULL, 0));
  OK(library.api->context_create(&options, &context));
  OK(library.api->tensor_list_create(context, &g, 1, NULL, &list));
  OK(library.api->scaler_create(context, NULL, &scaler));
  OK(library.api->scaler_check(scaler, list, NULL));
  left_behind[0] = context;
  left_behind[1] = list;
  left_behind[2] = scaler;
  gsc_library_close(&library);
  CHECK(!is_loaded(path));
  open_use_close(path);
}

/* Expects that nothing is loaded from `path`, and returns the message, which has both words in it. */
static const char *refuse(const char *path, const char *word, const char *other) {
  static char message[2048];
  gsc_library library;
  CHECK(!gsc_library_open(&library, path, message, sizeof message));
  CHECK(library.handle == NULL && library.api == NULL);
  if (strstr(message, word) == NULL || strstr(message, other) == NULL) {
    fprintf(stderr, "not \"%s\" and \"%s\": %s\n", word, other, message);
    exit(1);
  }
  return message;
}

/* The first `bytes` bytes of the library as a file that is refused, and says why; then the library loads. */
static void refuse_file(const char *path, long bytes, const char *why) {
  static const char name[] = "./abi_dlopen_broken.so";
  gsc_library library;
  FILE *in = fopen(path, "rb"), *out = fopen(name, "wb");
  long i;
  CHECK(in != NULL && out != NULL);
  for (i = 0; i < bytes; ++i) fputc(fgetc(in), out);
  CHECK(fclose(in) == 0 && fclose(out) == 0);
  CHECK(strlen(refuse(name, name, why)) > strlen(name) + 20);
  CHECK(remove(name) == 0);
  CHECK(gsc_library_open(&library, path, NULL, 0));
  gsc_library_close(&library);
  CHECK(!is_loaded(path));
}

static void fail_with_words(const char *path) {
  static const char missing[] = MISSING;
  const char *found;
  gsc_library library;
  char message[2048], little[24];
  refuse(missing, missing, WHY_MISSING);
  refuse(ANOTHER_LIBRARY, ANOTHER_LIBRARY, "gsc_library_get_api");
  refuse("/", "\"/\"", ""); /* a directory */
  refuse_file(path, 0, "");
  refuse_file(path, 64, "");
#if defined(__linux__)
  refuse_file(path, 300, "cut off");   /* in the table of segments */
  refuse_file(path, 4096, "cut off");  /* on the edge of a page */
  refuse_file(path, 50000, "cut off"); /* before dlopen reads what is not there */
#endif

  CHECK(!gsc_library_open(&library, missing, little, sizeof little));
  CHECK(strlen(little) == sizeof little - 1);
  CHECK(!gsc_library_open(&library, missing, NULL, 0));

  /* The environment names the file; when it is wrong, the message has it and what was tried next. */
  CHECK(set_variable("GRADSCALER_LIBRARY", path) == 0);
  CHECK(gsc_library_open(&library, NULL, message, sizeof message));
  gsc_library_close(&library);
  CHECK(!is_loaded(path));
  found = refuse(missing, missing, ""); /* a path given is the only one tried */
  CHECK(strstr(found, path) == NULL && strstr(found, "GRADSCALER_LIBRARY") == NULL);
  CHECK(set_variable("GRADSCALER_LIBRARY", missing) == 0);
  if (gsc_library_open(&library, NULL, message, sizeof message)) {
    printf("%s is installed on this system; the message without it is not looked at\n", GSC_LIBRARY_NAME);
    gsc_library_close(&library);
  } else {
    found = strstr(message, missing);
    CHECK(found != NULL && strstr(found, "\"" GSC_LIBRARY_NAME "\"") != NULL);
    CHECK(strstr(message, "; the environment variable GRADSCALER_LIBRARY can name the file") != NULL);
  }
}

int main(int argc, char **argv) {
  int round;
  pthread_t thread;
  if (argc != 2) {
    fprintf(stderr, "usage: %s libgradscaler.so\n", argv[0]);
    return 2;
  }
  CHECK(!is_loaded(argv[1]));
  /* A sanitizer starts a thread of its own with the program's first. */
  CHECK(pthread_create(&thread, NULL, do_nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
  for (round = 0; round < ROUNDS; ++round) open_use_close(argv[1]);
  fail_with_words(argv[1]);
  unload_with_live_objects(argv[1]);
  printf("%d rounds of load, train, unload\n", ROUNDS);
  return 0;
}
