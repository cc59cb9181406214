/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXAMPLES_FORMATS_H
#define EXAMPLES_FORMATS_H
#include <stdint.h>

/**
 * The GSC_STATE_* called full, 16bit or 8bit, and the GSC_MASTER_* called fp32, split16, split8 or stochastic. NULL is
 * the first of them. Returns 0 for another name.
 */
int formats_of(const char *state, const char *master, int32_t *state_format, int32_t *master_format);

#endif
