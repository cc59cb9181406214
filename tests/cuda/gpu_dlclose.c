/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unloads the library while objects of it still live on a CUDA device, and loads it again. Usage: gpu_dlclose
 * <library>. Exit status 77: no device, or a library without CUDA.
 */
#include <dlfcn.h>
#include <gradscaler/api.h>
#include <stdio.h>

static int use_once(const char *path, int *missing) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const gsc_api *(*get_api)(uint32_t) = NULL;
  const gsc_api *api;
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  gsc_context *context = NULL;
  gsc_scaler *scaler = NULL;
  float scale = 0.0f;
  gsc_status status;
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  *(void **)&get_api = dlsym(library, "gsc_library_get_api");
  if (get_api == NULL || (api = get_api(GSC_ABI_VERSION)) == NULL) return 1;
  options.device_type = GSC_DEVICE_CUDA;
  status = api->context_create(&options, &context);
  *missing = status == GSC_ERROR_UNAVAILABLE;
  if (status == GSC_OK) status = api->scaler_create(context, NULL, &scaler);
  if (status == GSC_OK) status = api->scaler_get_scale_sync(scaler, &scale, NULL);
  if (status != GSC_OK && !*missing) fprintf(stderr, "%s\n", api->error_get_message());
  /* The objects are not destroyed. */
  if (dlclose(library) != 0) return 1;
  return *missing || (status == GSC_OK && scale == 65536.0f) ? 0 : 1;
}

int main(int argc, char **argv) {
  int missing = 0;
  int i;
  if (argc != 2) return 2;
  for (i = 0; i < 2; ++i) {
    if (use_once(argv[1], &missing) != 0) return 1;
    if (missing) return 77;
  }
  return 0;
}
