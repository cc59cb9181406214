// SPDX-License-Identifier: Apache-2.0
// Memory for tensors, handed out array by array from one mapping that all benchmarks of the library share, so that
// pages are touched once and not once a case. Also the contexts, and the few facts about dtypes that a benchmark needs.
#pragma once

#include <cstdint>
#include <gradscaler/gradscaler.hpp>
#include <span>
#include <vector>

#include "measure.h"

namespace bench {

using gradscaler::DType;

constexpr int64_t size_of(DType dtype) { return dtype == DType::fp64 ? 8 : (dtype == DType::fp32 ? 4 : 2); }
const char *name_of(DType dtype);

/// The context of this process for a number of threads.
gradscaler::Context &context(int threads);

enum class Fill {
  zero,
  noise,  ///< magnitudes of 2^-8 .. 1, both signs: nothing overflows, nothing is subnormal
};

class Workspace {
 public:
  /// Arrays do not start at the same offset of a page, so that no case measures how addresses alias.
  static constexpr int64_t kSkewBytes = 17 * 64;
  /// What an array takes of a workspace.
  static constexpr int64_t room(int64_t bytes) { return (bytes + 63) / 64 * 64 + kSkewBytes; }

  /// Takes the shared mapping of these pages from its start; only one such workspace is in use at a time. Throws if the
  /// machine does not have twice as much memory.
  static Workspace shared(int64_t bytes, Pages pages = Pages::usual);
  /// Where the shared mapping begins.
  static char *shared_start(Pages pages);
  /// A separate mapping.
  explicit Workspace(int64_t bytes, Pages pages = Pages::usual);
  Workspace &operator=(Workspace &&) = delete;
  Workspace(Workspace &&) = delete;
  ~Workspace();

  void *raw(int64_t bytes);
  gradscaler::Tensor array(DType dtype, int64_t count, Fill fill);

 private:
  Workspace(char *base, int64_t bytes) : base_(base), bytes_(bytes), owned_(false) {}

  char *base_;
  int64_t bytes_;
  int64_t used_ = 0;
  bool owned_ = true;
};

/// An array as consecutive tensors of the given element counts.
std::vector<gradscaler::Tensor> cut(const gradscaler::Tensor &array, std::span<const int64_t> counts);

}  // namespace bench
