// SPDX-License-Identifier: Apache-2.0
// A context: the device with its backend, the host memory of all its objects, and the log callback. Every other object
// keeps its context alive.
#pragma once

#include <atomic>
#include <memory_resource>
#include <mutex>
#include <new>
#include <utility>

#include "core/base/memory.h"
#include "core/device/backend.h"
#include "core/device/plan.h"
#include "core/device/registry.h"
#include "core/objects/object.h"
#include "core/objects/stream_order.h"

namespace gsc {

class Context final : public Object {
 public:
  static constexpr Tag kTag = Tag::kContext;

  /// `options` is complete and of this version's size. `vulkan`: the caller's device, if the options are for Vulkan;
  /// NULL: the device that they name.
  static Ref<Context> create(const gsc_context_options &options, const gscx_vulkan_device *vulkan = nullptr);

  std::pmr::memory_resource *memory() { return &memory_; }
  Backend &backend() { return *backend_; }
  EventPool &events() { return events_; }
  int32_t device_type() const { return row_.device_type; }
  /// Its kind, such as "CPU".
  const char *device_name() const { return row_.name; }
  int32_t device_index() const { return device_index_; }
  int64_t host_bytes() const { return int64_t{sizeof(Context)} + memory_.held(); }
  int64_t device_bytes() const { return backend_->device_bytes(); }
  int32_t cpu_target() const { return cpu_target_; }
  int32_t num_threads() const { return num_threads_; }

  void set_log(gsc_log_fn log, void *user);
  [[gnu::format(printf, 3, 4)]] void log(int32_t level, const char *format, ...) const;

  /// Plans for the stateless operations, kept so that a repeated call does not allocate. f(first, second) may use both.
  template <typename F>
  void with_scratch_plans(const F &f) {
    const ScratchLock lock(scratch_taken_);
    if (lock.is_mine) {
      f(scratch_[0], scratch_[1]);
    } else {  // in use by another thread, or by the call that runs this callback
      Plan first(&memory_);
      Plan second(&memory_);
      f(first, second);
    }
  }

  /// Guards the uses of lists by optimizers, and the addresses of lists in use.
  std::mutex &uses_mutex() { return uses_mutex_; }

  /// Makes an object in this context's memory. The object frees itself with unmake().
  template <typename T, typename... Args>
  Ref<T> make(Args &&...args) {
    void *memory = memory_.allocate(sizeof(T), alignof(T));
    try {
      return Ref<T>::adopt(new (memory) T(std::forward<Args>(args)...));
    } catch (...) {
      memory_.deallocate(memory, sizeof(T), alignof(T));
      throw;
    }
  }
  /// Ends an object made by make(), and releases its context last.
  template <typename T>
  static void unmake(T *object) noexcept {
    const Ref<Context> context = object->context();
    object->~T();
    context->memory_.deallocate(object, sizeof(T), alignof(T));
  }

 private:
  struct ScratchLock {
    explicit ScratchLock(std::atomic<bool> &flag)
        : taken(flag), is_mine(!flag.exchange(true, std::memory_order_acquire)) {}
    ScratchLock(const ScratchLock &) = delete;
    ScratchLock &operator=(const ScratchLock &) = delete;
    ~ScratchLock() {
      if (is_mine) taken.store(false, std::memory_order_release);
    }
    std::atomic<bool> &taken;
    const bool is_mine;
  };

  Context(const Resource &memory, const gsc_context_options &options, const gscx_vulkan_device *vulkan);
  ~Context() override;
  void destroy() noexcept override;

  Resource memory_;
  Backend *backend_ = nullptr;
  std::size_t backend_bytes_ = 0;
  const BackendRow &row_;
  int32_t device_index_;
  int32_t cpu_target_;
  int32_t num_threads_;
  gsc_log_fn log_;
  void *log_user_;
  std::atomic<bool> scratch_taken_{false};
  std::mutex uses_mutex_;
  EventPool events_{&memory_};
  Plan scratch_[2];
};

/// Device memory that belongs to an object.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Backend &backend, int64_t bytes)
      : backend_(&backend), data_(bytes > 0 ? backend.allocate(bytes) : nullptr), bytes_(bytes) {}
  DeviceMemory(DeviceMemory &&other) noexcept
      : backend_(other.backend_), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  DeviceMemory &operator=(DeviceMemory other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory() {
    if (data_ != nullptr) backend_->release(data_, bytes_);
  }
  template <typename T>
  T *as() const {
    return static_cast<T *>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  Backend *backend_ = nullptr;
  void *data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace gsc
