// SPDX-License-Identifier: Apache-2.0
// Finds two buffers that share memory, among any number of lists. Used when objects are made and when lists move.
#pragma once

#include <cstdint>

#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/device/names.h"
#include "gradscaler/gradscaler.h"

namespace gsc {

class Plan;
class TensorList;

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
    int32_t source;
  };
  void run_against(const Plan &plan, const Source &of_list) const;
  [[noreturn]] static void fail_on(const Source &a_source, const Span &a, const Source &b_source, const Span &b);
  const Source &source(const Span &span) const { return sources_[span.source]; }
  template <typename T>
  void add_all(const T *tensors, int64_t count, const Argument &what, const Names *names);

  Vec<Source> sources_;
  Vec<Span> spans_;
};

}  // namespace gsc
