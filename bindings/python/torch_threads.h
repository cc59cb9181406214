/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a context on PyTorch's own compute threads. These keep spinning for some milliseconds after each operation, and
 * would compete with a second pool for the processors.
 */
#ifndef GRADSCALER_PYTHON_TORCH_THREADS_H
#define GRADSCALER_PYTHON_TORCH_THREADS_H
#include <gradscaler/gradscaler.h>

/*
 * Sets options->parallel_for, for options->num_threads threads. Returns 0, and changes nothing, if PyTorch is not
 * loaded or its OpenMP runtime lacks GNU's interface. The caller ensures that this process may use that runtime: the
 * child of a fork may not.
 */
int gsc_use_torch_threads(gsc_context_options *options);

#endif /* GRADSCALER_PYTHON_TORCH_THREADS_H */
