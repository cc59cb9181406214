/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the shared library (argv[1]), makes and destroys a context and a failing call, unloads it, argv[2] times, and
 * checks that neither the heap nor the process grows.
 */
#define _DEFAULT_SOURCE
#include <gradscaler/loader.h>
#include <malloc.h>

/* Resident memory in KiB. */
static long resident(void) {
  long pages = 0, total = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == NULL) return 0;
  if (fscanf(file, "%ld %ld", &total, &pages) != 2) pages = 0;
  fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int load_use_unload(const char *path) {
  gsc_library library;
  gsc_context *context = NULL;
  char message[1024];
  int failed;
  if (!gsc_library_open(&library, path, message, sizeof message)) {
    fprintf(stderr, "%s\n", message);
    return 0;
  }
  failed = library.api->context_create(NULL, &context) != GSC_OK;
  failed |= library.api->context_get_device(NULL, NULL, NULL) != GSC_ERROR_INVALID_ARGUMENT; /* throws inside */
  library.api->context_destroy(context);
  gsc_library_close(&library);
  return !failed;
}

int main(int argc, char **argv) {
  const int warm_up = 300; /* allocators settle late: their caches fill over a few hundred cycles */
  int round, rounds;
  size_t heap = 0, heap_after;
  long pages = 0, pages_after;
  if (argc != 3) return 2;
  rounds = atoi(argv[2]);
  for (round = -warm_up; round < rounds; ++round) {
    if (round == 0) {
      heap = mallinfo2().uordblks;
      pages = resident();
    }
    if (!load_use_unload(argv[1])) return 1;
  }
  heap_after = mallinfo2().uordblks;
  pages_after = resident();
  printf("%d cycles: heap %ld bytes, resident %ld KiB more than before\n", rounds, (long)heap_after - (long)heap,
         pages_after - pages);
  /* A cycle that leaves anything behind shows: 16 bytes are the least that malloc gives. */
  return (long)heap_after - (long)heap < 16L * rounds && pages_after - pages < 1024 ? 0 : 1;
}
