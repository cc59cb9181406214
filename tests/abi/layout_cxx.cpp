// SPDX-License-Identifier: Apache-2.0
//
// The written-out layout against the headers, in C++20. Nothing runs: a mistake does not compile.
#include <gradscaler/api.h>

#include <cstddef>
#include <type_traits>

#define GSC_LAYOUT_SIZE(bytes)                                                            \
  static_assert(sizeof(GSC_STRUCT) == (bytes) && std::is_standard_layout_v<GSC_STRUCT> && \
                std::is_trivial_v<GSC_STRUCT>);
#define GSC_LAYOUT_FIELD(field, bytes) static_assert(offsetof(GSC_STRUCT, field) == (bytes));
#define GSC_LAYOUT_VALUE(name, value) static_assert((name) == (value));
#include "layout.inc"

static_assert(std::is_same_v<gsc_status, int32_t>);
static_assert(std::is_same_v<gsc_stream, void *>);
