// SPDX-License-Identifier: Apache-2.0
// The frame of every entry point. It turns exceptions into a status and this thread's message, sets the floating-point
// environment, checks handles, and reads and writes versioned structs at the size that their caller was compiled with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "capi/last_error.h"
#include "core/base/error.h"
#include "core/base/float_environment.h"
#include "core/base/memory.h"
#include "core/device/misuse.h"
#include "core/objects/object.h"
#include "core/rules/write_struct.h"
#include "gradscaler/gradscaler.h"

namespace gsc::capi {

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

/// Of a struct with struct_size, whose program may know fewer fields than this library, or more: docs/reference/abi.md.
/// Every version has the first 16 bytes. None has more than a page, so that a size never set is called one.
constexpr uint32_t kMinStructSize = 16, kMaxStructSize = 4096;

/// Whether a struct of this size would end within a field. All fields fit into the alignment, but for one name.
template <typename S>
bool cuts_a_field(uint32_t size) {
  if (size % alignof(S) != 0) return true;
  if constexpr (requires(const S &s) { s.name; }) {
    return size > offsetof(S, name) && size < offsetof(S, name) + sizeof(S::name);
  }
  return false;
}

/// Fails unless some version of the struct may have this size; returns it.
template <typename S>
uint32_t require_struct_size(uint32_t size, const Argument &name) {
  if (size < kMinStructSize || size > kMaxStructSize || cuts_a_field<S>(size)) {
    refuse(name, "is %u; set it to the sizeof of the struct, which has %u bytes in this version of the library", size,
           static_cast<unsigned>(sizeof(S)));
  }
  return size;
}

/// Reads a struct of the caller's over `defaults`, which remain in the fields that its program does not know. Fields that
/// only the program knows must be 0, which is the behaviour without them. `name` is the struct's.
template <typename S>
S read_struct(const S *in, const Argument &name, const S &defaults = {}) {
  const uint32_t size = require_struct_size<S>(require(in, name)->struct_size, name.field("struct_size"));
  const auto *const bytes = reinterpret_cast<const unsigned char *>(in);
  for (uint32_t at = sizeof(S); at < size; ++at) {
    if (bytes[at] == 0) continue;
    fail(GSC_ERROR_UNSUPPORTED, name,
         "has %u bytes, of which byte %u is not 0: the program sets a field that this version of the library does not "
         "know",
         size, at);
  }
  S value = defaults;
  std::memcpy(&value, bytes, std::min<std::size_t>(size, sizeof(S)));
  value.struct_size = sizeof(S);
  return value;
}

/// Checks the struct_size that the caller has set in an output struct.
template <typename S>
S *require_out_struct(S *out, const Argument &name) {
  require_struct_size<S>(require(out, name)->struct_size, name.field("struct_size"));
  return out;
}

/// Fills in what require_out_struct has checked.
template <typename S>
void write_struct(S *out, const S &value) {
  gsc::write_struct(out, out->struct_size, value);
}

/// Body of the *_options_init functions.
template <typename S>
void init_struct(S *options, uint32_t struct_size, const S &defaults) {
  require(options, "options");
  gsc::write_struct(options, require_struct_size<S>(struct_size, "struct_size"), defaults);
}

}  // namespace gsc::capi
