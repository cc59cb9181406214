// SPDX-License-Identifier: Apache-2.0
// Lifetime: every object of the C ABI is a reference-counted Object that keeps its context, and so the memory it came
// from, alive.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace gsc {

/// Base of the objects behind handles. The tag names the kind: bindings pass untyped pointers.
class Object {
 public:
  enum class Tag : uint32_t {
    kContext = 0x47534301,
    kTensorList = 0x47534302,
    kScaler = 0x47534303,
    kOptimizer = 0x47534304,
    kGone = 0
  };
  Object(const Object &) = delete;
  Object &operator=(const Object &) = delete;

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }
  Tag tag() const noexcept { return tag_; }

  /// Marks a call that changes the object. False if such a call is running: the outer call of this callback, or another
  /// thread's. The first case is always found, the second usually; a lock would cost more than it is worth.
  bool begin_call() noexcept {
    if (in_call_.load(std::memory_order_relaxed)) return false;
    in_call_.store(true, std::memory_order_relaxed);
    return true;
  }
  void end_call() noexcept { in_call_.store(false, std::memory_order_relaxed); }
  bool is_in_call() const noexcept { return in_call_.load(std::memory_order_relaxed); }

 protected:
  explicit Object(Tag tag) : tag_(tag) {}
  virtual ~Object() { tag_ = Tag::kGone; }

 private:
  /// Runs the destructor and returns the memory to its resource.
  virtual void destroy() noexcept = 0;

  Tag tag_;
  std::atomic<int32_t> references_{1};
  std::atomic<bool> in_call_{false};
};

/// Owning pointer to an Object.
template <typename T>
class Ref {
 public:
  Ref() = default;
  Ref(const Ref &other) noexcept : object_(other.object_) {
    if (object_ != nullptr) object_->retain();
  }
  Ref(Ref &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref &operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) object_->release();
  }

  /// Takes over a reference that the caller holds.
  static Ref adopt(T *object) noexcept {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  /// Adds a reference.
  static Ref share(T *object) noexcept {
    if (object != nullptr) object->retain();
    return adopt(object);
  }
  /// Hands the reference to the caller.
  T *detach() noexcept { return std::exchange(object_, nullptr); }

  T *get() const noexcept { return object_; }
  T *operator->() const noexcept { return object_; }
  T &operator*() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  T *object_ = nullptr;
};

}  // namespace gsc
