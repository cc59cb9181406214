// SPDX-License-Identifier: Apache-2.0
// Recording of a call's work: dispatches with the barriers between them, into the caller's command buffer or into one of
// the library's, which is submitted at the end.
#pragma once

#include <mutex>
#include <span>

#include "core/vulkan/kernels.h"
#include "core/vulkan/memory.h"

namespace gsc::vulkan {

/// Kernels that have been compiled, by what they were compiled for.
class Pipelines {
 public:
  Pipelines(std::pmr::memory_resource *host, Device &device);
  Pipelines(const Pipelines &) = delete;
  Pipelines &operator=(const Pipelines &) = delete;
  ~Pipelines();
  /// Compiles it the first time. `special` and `threads`: see kernels.h.
  VkPipeline get(Kernel kernel, int32_t special, int32_t threads);
  VkPipelineLayout layout() const { return layout_; }

 private:
  struct Entry {
    Kernel kernel;
    int32_t special;
    int32_t threads;
    VkPipeline pipeline;
  };
  VkPipeline compile(Kernel kernel, int32_t special, int32_t threads);

  std::pmr::memory_resource *host_;
  Device &device_;
  VkPipelineLayout layout_ = nullptr;
  Vec<Entry> made_;
};

/// What all calls of a context share. `mutex` is held while a call records, and around `memory`.
struct Recorder {
  Recorder(std::pmr::memory_resource *host, Device &device);
  Recorder(const Recorder &) = delete;
  Recorder &operator=(const Recorder &) = delete;
  ~Recorder() { close(); }
  void close() noexcept;
  /// Waits for all that the library has submitted.
  void wait(const char *what);
  /// From `memory`, which is asked again without what it holds and does not need if it has no room. `mutex` is held.
  uint64_t take(int64_t bytes);
  /// To `memory`, from which it releases what is not needed. What the library has submitted may still use it.
  void give_back(uint64_t address, int64_t bytes) noexcept;

  /// The library's own command buffers.
  struct Slot {
    VkCommandBuffer commands = nullptr;
    VkFence fence = nullptr;
    bool pending = false;
  };
  void wait_for(Slot &slot, const char *what);
  bool release(Memory::Which which) noexcept;

  static constexpr int64_t kArgumentBytes = 65536;
  static constexpr int64_t kStagingBytes = int64_t{1} << 20;
  Device &device;
  Memory memory;
  Pipelines pipelines;
  std::mutex mutex;
  Slot slots[4];
  int32_t next = 0;
  VkCommandPool pool = nullptr;
  uint64_t arguments = 0;  ///< kArgumentBytes for the arguments of a call's kernels
  uint64_t scratch = 0;    ///< for the tables of operations without lists; an earlier one is kept, as it is in use
  int64_t scratch_bytes = 0;
  Block staging;  ///< between the host and tensors
};

/// One call's recording. What can fail comes before the first command, or is the submission of all at the end.
class Recording {
 public:
  Recording(Recorder &recorder, gsc_stream stream, const char *what);
  Recording(const Recording &) = delete;
  Recording &operator=(const Recording &) = delete;

  /// A kernel to be dispatched by run(), after those before it, with a copy of `arguments`. Fails only here.
  template <typename Args>
  void add(Kernel kernel, int64_t work, int32_t threads, const Args &arguments, int32_t special = 0) {
    static_assert(sizeof(Args) % 4 == 0 && alignof(Args) <= 8);
    add(kernel, work, threads, special, &arguments, sizeof arguments);
  }
  /// Bytes of the host's for the kernels; the address where they will be. Called before run().
  uint64_t send(const void *data, int64_t bytes);
  /// At least so much scratch memory, from now on.
  uint64_t scratch(int64_t bytes);
  /// Commands, in their order. The first is a barrier.
  void barrier();
  void update(uint64_t address, const void *data, int64_t bytes);
  void fill_zero(uint64_t address, int64_t bytes);
  void run();
  /// Makes results visible to the host once the fence is reached.
  void barrier_to_host();
  /// Submits what is the library's. With `wait`, also waits for it.
  void finish(bool wait = false);

 private:
  struct Dispatch {
    VkPipeline pipeline;
    uint64_t arguments;
    uint32_t groups;
  };
  void add(Kernel kernel, int64_t work, int32_t threads, int32_t special, const void *arguments, int64_t bytes);
  void begin();
  void memory_barrier(VkPipelineStageFlags to, VkAccessFlags access);
  const Functions &functions() const { return recorder_.device.functions(); }

  Recorder &recorder_;
  const std::lock_guard<std::mutex> lock_;
  const char *what_;
  Recorder::Slot *slot_ = nullptr;
  VkCommandBuffer commands_ = nullptr;
  int count_ = 0;
  Dispatch dispatches_[10];
  int64_t sent_bytes_ = 0;
  alignas(8) unsigned char sent_[8192];
};

}  // namespace gsc::vulkan
