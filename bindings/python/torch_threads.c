/* SPDX-License-Identifier: Apache-2.0
 *
 * See torch_threads.h. A region is opened by GOMP_parallel, which compilers call and which LLVM's and Intel's runtimes
 * also provide. Compiling this with -fopenmp would not do: it must be the very runtime that PyTorch has loaded, often a
 * copy of its own.
 */
#define _GNU_SOURCE
#include "torch_threads.h"

#if defined(__linux__)
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

typedef void (*OpenRegion)(void (*body)(void *), void *argument, unsigned threads, unsigned flags);

/* Written by the thread that holds the GIL, always with the same values in a process. */
static OpenRegion open_region = NULL;
static pid_t process = 0;

typedef struct Work {
  gsc_task_fn body;
  void *argument;
  int32_t count;
  atomic_int next;
} Work;

static void take_tasks(void *argument) {
  Work *work = (Work *)argument;
  for (;;) {
    const int32_t index = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed);
    if (index >= work->count) return;
    work->body(work->argument, index);
  }
}

/* A gsc_parallel_for_fn. The region uses PyTorch's number of threads even for fewer tasks: another number would make
 * the runtime stop and start threads. Nested in another region it has one thread, which is enough. */
static void run_tasks(void *user, int32_t count, gsc_task_fn body, void *argument) {
  Work work = {body, argument, count, 0};
  if (process == getpid()) {
    open_region(take_tasks, &work, (unsigned)(uintptr_t)user, 0);
  } else {
    take_tasks(&work); /* the threads belonged to the parent process */
  }
}

int gsc_use_torch_threads(gsc_context_options *options) {
  void *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (!torch) return 0;
  /* As the loader bound PyTorch's own calls: a runtime that was preloaded comes before the one it was linked with. */
  void *found = dlsym(RTLD_DEFAULT, "GOMP_parallel");
  if (!found) found = dlsym(torch, "GOMP_parallel");
  dlclose(torch); /* PyTorch is never unloaded */
  if (!found) return 0;
  memcpy(&open_region, &found, sizeof open_region); /* ISO C has no such cast */
  process = getpid();
  options->parallel_for = run_tasks;
  options->parallel_for_user = (void *)(uintptr_t)options->num_threads;
  return 1;
}

#else

int gsc_use_torch_threads(gsc_context_options *options) {
  (void)options;
  return 0;
}

#endif
