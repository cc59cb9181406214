// SPDX-License-Identifier: Apache-2.0
// Mappings, noise in every dtype, contexts.
#include "workspace.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>

namespace bench {
namespace {

constexpr int64_t kPatternElements = 1 << 14;
/// Address space of the shared mapping; pages that no benchmark touches cost nothing.
constexpr int64_t kSharedBytes = int64_t{8} << 30;

char *map_memory(int64_t bytes, Pages pages) {
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("out of memory");
  if (pages == Pages::huge && madvise(memory, bytes, MADV_HUGEPAGE) != 0) {
    throw std::runtime_error("left out: no huge pages");
  }
  return static_cast<char *>(memory);
}

/// A piece of noise, to be repeated over an array.
const std::vector<char> &noise(DType dtype) {
  static std::map<DType, std::vector<char>> patterns;
  std::vector<char> &pattern = patterns[dtype];
  if (!pattern.empty()) return pattern;
  std::vector<double> values(kPatternElements);
  uint64_t state = 1;
  for (double &value : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const double bits = (state >> 40) * 0x1p-24;  // in [0, 1)
    value = ((state & (uint64_t{1} << 39)) != 0 ? 1.0 : -1.0) * (0x1p-8 + bits * (1.0 - 0x1p-8));
  }
  pattern.resize(kPatternElements * size_of(dtype));
  gradscaler::ops::cast(context(1), gradscaler::tensor(std::span(values)),
                        gradscaler::tensor(pattern.data(), kPatternElements, dtype));
  return pattern;
}

}  // namespace

const char *name_of(DType dtype) {
  if (dtype == DType::fp16) return "fp16";
  if (dtype == DType::bf16) return "bf16";
  return dtype == DType::fp32 ? "fp32" : "fp64";
}

gradscaler::Context &context(int threads) {
  static std::map<int, gradscaler::Context> contexts;
  const gradscaler::ContextOptions options{.num_threads = threads,
                                           .cpu_target = static_cast<gradscaler::CpuTarget>(settings().cpu_target)};
  return contexts.try_emplace(threads, options).first->second;
}

char *Workspace::shared_start(Pages pages) {
  static std::map<Pages, char *> bases;
  char *&base = bases[pages];
  if (base == nullptr) base = map_memory(kSharedBytes, pages);
  return base;
}

Workspace Workspace::shared(int64_t bytes, Pages pages) {
  char *base = shared_start(pages);
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (bytes > kSharedBytes || 2 * bytes > memory) throw std::runtime_error("left out: too little memory");
  return {base, kSharedBytes};
}

Workspace::Workspace(int64_t bytes, Pages pages) : base_(map_memory(bytes, pages)), bytes_(bytes) {}

Workspace::~Workspace() {
  if (owned_) munmap(base_, bytes_);
}

void *Workspace::raw(int64_t bytes) {
  char *memory = base_ + used_;
  used_ += room(bytes);
  if (used_ > bytes_) throw std::runtime_error("the workspace is too small");
  return memory;
}

gradscaler::Tensor Workspace::array(DType dtype, int64_t count, Fill fill) {
  const int64_t bytes = count * size_of(dtype);
  char *data = static_cast<char *>(raw(bytes));
  if (fill == Fill::zero) {
    std::memset(data, 0, bytes);
  } else {
    const std::vector<char> &pattern = noise(dtype);
    for (int64_t done = 0; done < bytes; done += std::ssize(pattern)) {
      std::memcpy(data + done, pattern.data(), std::min(bytes - done, std::ssize(pattern)));
    }
  }
  return gradscaler::tensor(data, count, dtype);
}

std::vector<gradscaler::Tensor> cut(const gradscaler::Tensor &array, std::span<const int64_t> counts) {
  std::vector<gradscaler::Tensor> tensors;
  const auto dtype = static_cast<DType>(array.dtype);
  char *next = static_cast<char *>(array.data);
  for (const int64_t count : counts) {
    tensors.push_back(gradscaler::tensor(next, count, dtype));
    next += count * size_of(dtype);
  }
  return tensors;
}

}  // namespace bench
