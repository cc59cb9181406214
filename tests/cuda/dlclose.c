/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unloads the library while objects of it live on a CUDA device and a thread lives that has used CUDA through it, then
 * lets that thread exit: the CUDA runtime's per-thread data must not be cleaned up by unmapped code. Then loads it
 * again. Usage: dlclose <library>. Works without a device; the CUDA calls then fail.
 */
#include <dlfcn.h>
#include <gradscaler/api.h>
#include <pthread.h>
#include <stdio.h>

static pthread_barrier_t used, unloaded;
static const gsc_api *api;
static int failed;

static void *use(void *unused) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  gsc_context *context = NULL;
  gsc_scaler *scaler = NULL;
  gsc_device_info info;
  float scale = 0.0f;
  gsc_status status;
  options.device_type = GSC_DEVICE_CUDA;
  info.struct_size = sizeof info;
  api->device_get_info(GSC_DEVICE_CUDA, 0, &info);
  status = api->context_create(&options, &context);
  if (status != GSC_ERROR_UNAVAILABLE) {
    if (status == GSC_OK) status = api->scaler_create(context, NULL, &scaler);
    if (status == GSC_OK) status = api->scaler_get_scale_sync(scaler, &scale, NULL);
    if (status != GSC_OK) fprintf(stderr, "%s\n", api->error_get_message());
    failed |= scale != 65536.0f;
  }
  pthread_barrier_wait(&used);
  pthread_barrier_wait(&unloaded);
  return unused;
}

static int use_and_unload(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const gsc_api *(*get_api)(uint32_t) = NULL;
  pthread_t thread;
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  *(void **)&get_api = dlsym(library, "gsc_library_get_api");
  if (get_api == NULL || (api = get_api(GSC_ABI_VERSION)) == NULL) return 1;
  if (pthread_create(&thread, NULL, use, NULL) != 0) return 1;
  pthread_barrier_wait(&used);
  failed |= dlclose(library) != 0; /* the objects are not destroyed */
  if (dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL) {
    fprintf(stderr, "the library is still there after dlclose\n");
    failed = 1;
  }
  pthread_barrier_wait(&unloaded);
  pthread_join(thread, NULL);
  return failed;
}

int main(int argc, char **argv) {
  int i;
  if (argc != 2) return 2;
  pthread_barrier_init(&used, NULL, 2);
  pthread_barrier_init(&unloaded, NULL, 2);
  for (i = 0; i < 3; ++i) {
    if (use_and_unload(argv[1]) != 0) return 1;
  }
  return 0;
}
