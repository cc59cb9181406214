/* SPDX-License-Identifier: Apache-2.0
 *
 * The written-out layout against the headers, in C99. Nothing runs: a mistake does not compile. C99 has no
 * _Static_assert, so a false condition makes an array of negative size.
 */
#include <gradscaler/api.h>
#include <stddef.h>

#define GSC_ASSERT(condition) extern char gsc_layout[(condition) ? 1 : -1]
#define GSC_LAYOUT_SIZE(bytes) GSC_ASSERT(sizeof(GSC_STRUCT) == (bytes));
#define GSC_LAYOUT_FIELD(field, bytes) GSC_ASSERT(offsetof(GSC_STRUCT, field) == (bytes));
#define GSC_LAYOUT_VALUE(name, value) GSC_ASSERT((name) == (value));
#include "layout.inc"

GSC_ASSERT(sizeof(gsc_status) == 4 && (gsc_status)-1 < 0);
GSC_ASSERT(sizeof(gsc_stream) == sizeof(void *));
