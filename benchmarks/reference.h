// SPDX-License-Identifier: Apache-2.0
// Plain copies, reads and fills, with which the library's speed is compared: of as many bytes as the subject touches,
// with as many threads and in the same kind of pages. Each has several forms (one thread or all of them; one stream or
// four; the C library's function, with prefetching, or past the caches), of which the fastest at that size is taken.
#pragma once

#include "measure.h"

namespace bench {

/// Bytes of the largest reference; beyond the caches a larger one would tell nothing new.
constexpr int64_t kReferenceBytes = int64_t{1} << 28;

/// Where a reference runs.
enum class Over {
  arrays,  ///< the subject's, at the start of the shared workspace: the place of memory decides up to a third of its
           ///< speed. The noise that a subject of one or two arrays reads is kept; the rest may be overwritten.
  own,     ///< separate memory, if the reference would overwrite data of the subject
};

/// A copy between two halves of point.bytes; counts a read and a write.
Contender copy_reference(const Point &point, Over memory = Over::arrays);
/// A bare loop with the reads and writes of an element-wise operation from elements of src_size bytes to dst_size; in
/// place: the destination is read too and stays what it is, and src_size 0 stands for no other source. Counts them all.
/// A copy is its measure only where as much is read as written.
Contender loop_reference(const Point &point, int64_t src_size, int64_t dst_size, bool in_place);
/// A bare loop with the reads and writes of a step of AdamW over fp32 parameters: gradients of grad_size bytes, and a
/// 16-bit model copy if `copy`. Only that copy is overwritten.
Contender step_reference(const Point &point, int64_t grad_size, bool copy);
/// Fills point.bytes with zeros.
Contender fill_reference(const Point &point);
/// Adds up point.bytes.
Contender read_reference(const Point &point);

}  // namespace bench
