/* SPDX-License-Identifier: Apache-2.0
 *
 * Lets a context run on the threads that PyTorch computes with. They go on spinning for some milliseconds after each
 * operation, and would keep a second pool from their processors.
 */
#ifndef GRADSCALER_PYTHON_TORCH_THREADS_H
#define GRADSCALER_PYTHON_TORCH_THREADS_H
#include <gradscaler/gradscaler.h>

/*
 * Sets options->parallel_for, for as many threads as options->num_threads says. Returns 0, and changes nothing, if
 * PyTorch has not been loaded or its OpenMP runtime does not speak GNU's interface. The caller knows that this process
 * may use that runtime: the child of a fork may not.
 */
int gsc_use_torch_threads(gsc_context_options *options);

#endif /* GRADSCALER_PYTHON_TORCH_THREADS_H */
