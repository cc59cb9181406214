/* SPDX-License-Identifier: Apache-2.0
 *
 * The written-out layout against the headers, in C99. Nothing runs: a mistake does not compile. C99 has no
 * _Static_assert, so a false condition makes an array of negative size.
 */
#include <gradscaler/api.h>
#include <stddef.h>

#define GSC_ASSERT(name, condition) extern char name[(condition) ? 1 : -1]
#define GSC_LAYOUT_SIZE(type, bytes) GSC_ASSERT(size_of_##type, sizeof(type) == (bytes));
#define GSC_LAYOUT_FIELD(type, field, bytes) GSC_ASSERT(offset_in_##type##_##field, offsetof(type, field) == (bytes));
#define GSC_LAYOUT_LAST(type, field) \
  GSC_ASSERT(no_tail_in_##type, offsetof(type, field) + sizeof(((type *)0)->field) == sizeof(type));
#define GSC_LAYOUT_VALUE(name, value) GSC_ASSERT(value_of_##name, (name) == (value));
#include "layout.inc"

GSC_ASSERT(size_of_status, sizeof(gsc_status) == 4 && (gsc_status)-1 < 0);
GSC_ASSERT(size_of_stream, sizeof(gsc_stream) == sizeof(void *));
