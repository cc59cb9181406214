// SPDX-License-Identifier: Apache-2.0
// The frame of every entry point. It turns exceptions into a status and this thread's message, sets the floating-point
// environment, checks handles, and reads and writes versioned structs at the size that their caller was compiled with.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>

#include "core/base/error.h"
#include "core/base/float_environment.h"
#include "core/base/memory.h"
#include "core/device/misuse.h"
#include "core/objects/object.h"
#include "gradscaler/gradscaler.h"

namespace gsc::capi {

/// Stores the failure for this thread, with the message "function: what", and returns its status. `details` lacks the
/// function.
gsc_status set_error(const gsc_error &details, const char *function, const char *what) noexcept;

/// Fails if a callback broke its contract during the call.
void require_no_misuse();

/// Saves the notes of the outer call, if this call comes from a callback.
class OwnMisuse {
 public:
  OwnMisuse() = default;
  OwnMisuse(const OwnMisuse &) = delete;
  OwnMisuse &operator=(const OwnMisuse &) = delete;
  ~OwnMisuse() {
    take_misuse();
    add_misuse(outer_);
  }

 private:
  Misuse outer_ = take_misuse();
};

/// Runs `body` and turns any exception into a status. `function` is the entry point's name.
template <typename F>
gsc_status guard(const char *function, const F &body) noexcept {
  const FloatEnvironment environment;
  const OwnMisuse misuse;
  try {
    body();
    require_no_misuse();
    return GSC_OK;
  } catch (const Error &e) {
    return set_error(e.details(), function, e.what());
  } catch (const OutOfMemory &e) {
    return set_error(kNoArgument.with(GSC_ERROR_OUT_OF_MEMORY), function, e.what());
  } catch (const std::bad_alloc &) {
    return set_error(kNoArgument.with(GSC_ERROR_OUT_OF_MEMORY), function, "allocation of host memory failed");
  } catch (const std::exception &e) {
    return set_error(kNoArgument.with(GSC_ERROR_INTERNAL), function, e.what());
  } catch (...) {
    return set_error(kNoArgument.with(GSC_ERROR_INTERNAL), function, "unknown exception");
  }
}

/// Fails if a pointer argument is NULL; returns it.
template <typename T>
T *require(T *pointer, const Argument &name) {
  if (pointer == nullptr) refuse(name, "is NULL");
  return pointer;
}

/// A device scalar, or NULL where that is allowed.
template <typename T>
T *aligned(T *pointer, const Argument &name) {
  if (reinterpret_cast<uintptr_t>(pointer) % alignof(T) != 0) {
    refuse(name, "is %p, which is not aligned to %u bytes", static_cast<const void *>(pointer),
           static_cast<unsigned>(alignof(T)));
  }
  return pointer;
}

/// The same, and NULL is an error.
template <typename T>
T *require_aligned(T *pointer, const Argument &name) {
  return aligned(require(pointer, name), name);
}

/// The object behind a handle. Handles are addresses of Object.
template <typename T, typename Handle>
T &object(const Handle *handle, const Argument &name) {
  auto *base = reinterpret_cast<Object *>(const_cast<Handle *>(require(handle, name)));
  if (base->tag() != T::kTag) {
    refuse(name, "is a handle of another kind, or has been destroyed");
  }
  return static_cast<T &>(*base);
}

/// The object behind a handle, for a call that changes it or runs callbacks. In this scope no other such call gets the
/// object, and the object stays alive even if a callback destroys it.
template <typename T>
class InCall {
 public:
  template <typename Handle>
  InCall(const Handle *handle, const Argument &name) : InCall(object<T>(handle, name), name) {}
  InCall(T &in_call, const Argument &name) : object_(Ref<T>::share(&in_call)) {
    if (object_->begin_call()) return;
    fail(GSC_ERROR_BAD_STATE, name,
         "is in use by a call that has not returned; its callbacks cannot use it, nor can other threads");
  }
  InCall(const InCall &) = delete;
  InCall &operator=(const InCall &) = delete;
  ~InCall() { object_->end_call(); }
  T &operator*() const { return *object_; }
  T *operator->() const { return object_.get(); }

 private:
  Ref<T> object_;
};

/// The object behind a handle, for a call that reads it and runs callbacks, which can neither change nor end it. In a
/// callback it may be an object of the outer call.
template <typename T>
class InReading {
 public:
  template <typename Handle>
  InReading(const Handle *handle, const Argument &name)
      : object_(Ref<T>::share(&object<T>(handle, name))), is_mine_(object_->begin_call()) {}
  InReading(const InReading &) = delete;
  InReading &operator=(const InReading &) = delete;
  ~InReading() {
    if (is_mine_) object_->end_call();
  }
  T &operator*() const { return *object_; }
  T *operator->() const { return object_.get(); }

 private:
  Ref<T> object_;
  bool is_mine_;
};

template <typename T, typename Handle>
Ref<T> shared(const Handle *handle, const Argument &name) {
  return Ref<T>::share(&object<T>(handle, name));
}

template <typename Handle, typename T>
Handle *to_handle(T *pointer) {
  return reinterpret_cast<Handle *>(static_cast<Object *>(pointer));
}

template <typename Handle>
void destroy(Handle *handle) noexcept {
  const FloatEnvironment environment;
  if (handle != nullptr) reinterpret_cast<Object *>(handle)->release();
}

/// Structs are read at the sizes that released versions had: so far one each.
template <typename S>
void require_struct_size(uint32_t size, const Argument &name) {
  if (size == sizeof(S)) return;
  if (size > sizeof(S)) {
    refuse(name, "is %u, from a newer header than this library, whose struct has %u bytes", size,
           static_cast<unsigned>(sizeof(S)));
  }
  refuse(name, "is %u; set it to the sizeof of the struct, %u", size, static_cast<unsigned>(sizeof(S)));
}

/// Reads the caller's options struct. `name` is the argument's.
template <typename S>
S read_struct(const S *in, const Argument &name) {
  require_struct_size<S>(require(in, name)->struct_size, name.field("struct_size"));
  return *in;
}

/// Checks the struct_size that the caller has set in an output struct.
template <typename S>
S *require_out_struct(S *out, const Argument &name) {
  require_struct_size<S>(require(out, name)->struct_size, name.field("struct_size"));
  return out;
}

/// Body of the *_options_init functions.
template <typename S>
void init_struct(S *options, uint32_t struct_size, const S &defaults) {
  require(options, "options");
  require_struct_size<S>(struct_size, "struct_size");
  *options = defaults;
}

}  // namespace gsc::capi
