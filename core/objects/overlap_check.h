// SPDX-License-Identifier: Apache-2.0
// Finds buffers that share memory: of two tensors, or among any number of lists. Used when objects are made, when lists
// move, and by operations without objects.
#pragma once

#include <cstdint>

#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/device/names.h"
#include "gradscaler/gradscaler.h"

namespace gsc {

class Backend;
class Plan;
class TensorList;

/// A range of addresses.
struct Memory {
  uintptr_t begin, end;
  Memory(const void *data, int64_t bytes)
      : begin(reinterpret_cast<uintptr_t>(data)), end(begin + static_cast<uintptr_t>(bytes)) {}
  /// An empty range overlaps nothing, wherever it lies.
  bool overlaps(const Memory &other) const {
    return begin < end && other.begin < other.end && begin < other.end && other.begin < end;
  }
};

/// All memory that a tensor names. Whoever compares tensors in memory asks here.
struct TensorMemory {
  Memory elements, scales;
  explicit TensorMemory(const gsc_tensor &tensor);
  bool overlaps(const Memory &other) const { return elements.overlaps(other) || scales.overlaps(other); }
  bool overlaps(const TensorMemory &other) const { return overlaps(other.elements) || overlaps(other.scales); }
  bool overlaps_itself() const { return elements.overlaps(scales); }
};

/// Requires all memory that the tensors name to be of the backend's device.
void validate_memory(Backend &backend, const gsc_tensor *tensors, int64_t count, const Argument &what);

class OverlapCheck {
 public:
  explicit OverlapCheck(std::pmr::memory_resource *memory) : sources_(memory), spans_(memory) {}
  /// Removes all lists and keeps the memory.
  void clear() {
    sources_.clear();
    spans_.clear();
  }
  void add(const gsc_tensor *tensors, int64_t count, const Argument &what, const Names *names = nullptr);
  void add(const TensorList &list, const Argument &what);
  /// Throws if two overlap, and names both.
  void run();
  /// After run(): throws if a tensor of `list` overlaps one that was added. Allocates nothing. Fast if addresses rise
  /// from tensor to tensor, as in one arena.
  void run_against(const TensorList &list, const Argument &what) const;

 private:
  /// A list or an array of tensors that was added.
  struct Source {
    Argument what;
    const Names *names;
  };
  /// Small, because thousands of them are sorted whenever gradients move.
  struct Span {
    uintptr_t begin;
    uintptr_t end;
    int32_t index;  ///< lists have at most 2^24 tensors
    int32_t source : 31;
    bool is_scales : 1;
  };
  void run_against(const Plan &plan, const Source &of_list, bool is_scales) const;
  [[noreturn]] static void fail_on(const Source &a_source, const Span &a, const Source &b_source, const Span &b);
  const Source &source(const Span &span) const { return sources_[span.source]; }
  /// tensor_at(i) is a gsc_tensor.
  template <typename F>
  void add_all(const F &tensor_at, int64_t count, const Argument &what, const Names *names);
  void add_span(const Memory &memory, int64_t index, bool is_scales);

  Vec<Source> sources_;
  Vec<Span> spans_;
};

}  // namespace gsc
