// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_CPP_BASE_HPP
#define GRADSCALER_CPP_BASE_HPP
//
// The base of gradscaler.hpp: the exception, and the owner of one C object. The enumerations are in enums.hpp, the
// objects in the files beside this one.
//
#if defined(_MSVC_LANG) ? _MSVC_LANG <= 201703L : __cplusplus <= 201703L
#error "gradscaler's C++ layer needs C++20: compile with -std=c++20, or set CMAKE_CXX_STANDARD to 20"
#endif

#include <cstdint>
#include <gradscaler/cpp/enums.hpp>
#include <memory>
#include <stdexcept>
#include <string>

namespace gradscaler {

/// Thrown by every failing call: the library's message, its status, and the failure in fields.
class Error : public std::runtime_error {
 public:
  Error(gsc_status status, const std::string &message)
      : Error(gsc_error{sizeof(gsc_error), status, "", "", "", -1, -1}, message) {}
  Error(const gsc_error &details, const std::string &message) : std::runtime_error(message), details_(details) {}
  /// GSC_ERROR_*.
  gsc_status status() const noexcept { return details_.status; }
  /// Function, argument, field, index and tensor; empty if this layer found the error before calling the library.
  const gsc_error &details() const noexcept { return details_; }

 private:
  gsc_error details_;
};

namespace detail {

inline void check(gsc_status status) {
  if (status == GSC_OK) return;
  gsc_error details{};
  details.struct_size = sizeof details;
  gsc_error_get_last(&details);
  throw Error(details, gsc_error_get_message());
}

[[noreturn]] inline void bad_argument(const std::string &message) { throw Error(GSC_ERROR_INVALID_ARGUMENT, message); }

struct Destroy {
  void operator()(gsc_context *object) const noexcept { gsc_context_destroy(object); }
  void operator()(gsc_tensor_list *object) const noexcept { gsc_tensor_list_destroy(object); }
  void operator()(gsc_scaler *object) const noexcept { gsc_scaler_destroy(object); }
  void operator()(gsc_optimizer *object) const noexcept { gsc_optimizer_destroy(object); }
};

/// Owns one object of the C ABI.
template <typename Object>
class Handle {
 public:
  /// The object, still owned by this.
  Object *get() const noexcept { return object_.get(); }
  /// Hands the object to the caller, who must destroy it.
  [[nodiscard]] Object *release() noexcept { return object_.release(); }
  /// False after release or a move.
  explicit operator bool() const noexcept { return object_ != nullptr; }

 protected:
  Handle() = default;
  explicit Handle(Object *object) noexcept : object_(object) {}
  void take(Object *object) noexcept { object_.reset(object); }

 private:
  std::unique_ptr<Object, Destroy> object_;
};

/// Selects the constructor that takes over an existing object.
struct Adopt {};

}  // namespace detail

}  // namespace gradscaler

#endif  // GRADSCALER_CPP_BASE_HPP
