// SPDX-License-Identifier: Apache-2.0
// What the library is held against: memcpy, and the fastest plain read that this file knows, both over memory of their
// own, of as many bytes as the subject touches, with as many threads. Each is offered in several forms (one thread or
// all of them; one stream or four, with prefetching or without), and the one that is fastest at that size is taken.
#pragma once

#include "measure.h"

namespace bench {

/// Bytes of the largest reference; beyond the caches a larger one would tell nothing new.
constexpr int64_t kReferenceBytes = int64_t{1} << 28;

/// memcpy between two halves of point.bytes; counts a read and a write.
Contender memcpy_reference(const Point &point);
/// Adds up point.bytes.
Contender read_reference(const Point &point);

}  // namespace bench
