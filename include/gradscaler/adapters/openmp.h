/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRADSCALER_ADAPTERS_OPENMP_H
#define GRADSCALER_ADAPTERS_OPENMP_H
/*
 * A gsc_parallel_for_fn on the program's OpenMP threads, for trainers that already have them. Two pools on the same
 * processors would slow each other down, because idle OpenMP threads spin for a while. Needs OpenMP 4.5 and the
 * compiler's option for it (-fopenmp); the library itself does not depend on OpenMP.
 *
 *     gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
 *     gsc_openmp_use(&options);
 *     gsc_context_create(&options, &context);
 */
#include <gradscaler/gradscaler.h>

#if !defined(_OPENMP)
#error "gradscaler/adapters/openmp.h: compile with OpenMP (-fopenmp)"
#endif
#include <omp.h>

/**
 * A gsc_parallel_for_fn; user is not used. Outside a parallel region it opens one. Inside one it creates tasks, which
 * the region's threads run while they wait at a barrier, as they do during `omp single`.
 */
static inline void gsc_openmp_parallel_for(void *user, int32_t count, gsc_task_fn body, void *argument) {
  int32_t i;
  (void)user;
  if (omp_in_parallel()) {
#pragma omp taskloop grainsize(1)
    for (i = 0; i < count; ++i) body(argument, i);
  } else {
#pragma omp parallel for schedule(dynamic, 1)
    for (i = 0; i < count; ++i) body(argument, i);
  }
}

/** Sets num_threads, to OpenMP's for the next region, and parallel_for. */
static inline void gsc_openmp_use(gsc_context_options *options) {
  options->num_threads = (int32_t)omp_get_max_threads();
  options->parallel_for = gsc_openmp_parallel_for;
  options->parallel_for_user = 0;
}

#endif /* GRADSCALER_ADAPTERS_OPENMP_H */
