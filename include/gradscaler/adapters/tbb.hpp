// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_ADAPTERS_TBB_HPP
#define GRADSCALER_ADAPTERS_TBB_HPP
//
// A gsc_parallel_for_fn on oneTBB's threads. The library itself does not depend on TBB; a program that
// includes this header needs oneTBB 2021 or later and links it.
//
//     gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
//     gradscaler::use_tbb(options);
//     gsc_context_create(&options, &context);
//
#include <gradscaler/gradscaler.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

namespace gradscaler {

/// A gsc_parallel_for_fn; user is a tbb::task_arena, or NULL for the arena of the calling thread.
/// Isolated: while the calling thread waits it runs none of the program's other tasks, which might use the objects of
/// this call. Not cancelled with the caller's task group.
inline void tbb_parallel_for(void *user, int32_t count, gsc_task_fn body, void *argument) noexcept {
  const auto run = [=] {
    ::tbb::this_task_arena::isolate([=] {
      ::tbb::task_group_context own(::tbb::task_group_context::isolated);
      ::tbb::parallel_for(
          int32_t{0}, count, [=](int32_t index) { body(argument, index); }, ::tbb::simple_partitioner(), own);
    });
  };
  const auto run_there = [user, run] {
    if (user != nullptr) {
      static_cast<::tbb::task_arena *>(user)->execute(run);
    } else {
      run();
    }
  };
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
  try {
    run_there();
  } catch (...) {
    // No memory for TBB's tasks. The library runs the tasks that were left out, and its call fails.
  }
#else
  run_there();
#endif
}

/// Sets num_threads, to the arena's concurrency, and parallel_for. `options` is a gsc_context_options or a
/// gradscaler::ContextOptions. The arena must outlive the context and its objects.
template <typename Options>
void use_tbb(Options &options, ::tbb::task_arena *arena = nullptr) {
  options.num_threads = arena != nullptr ? arena->max_concurrency() : ::tbb::this_task_arena::max_concurrency();
  options.parallel_for = tbb_parallel_for;
  options.parallel_for_user = arena;
}

}  // namespace gradscaler

#endif  // GRADSCALER_ADAPTERS_TBB_HPP
