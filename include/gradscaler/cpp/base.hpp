// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_CPP_BASE_HPP
#define GRADSCALER_CPP_BASE_HPP
//
// The base of gradscaler.hpp: how calls fail, and the owner of one C object. The enumerations are in enums.hpp, the
// objects in the other files of this folder.
//
#if defined(_MSVC_LANG) ? _MSVC_LANG <= 201703L : __cplusplus <= 201703L
#error "gradscaler's C++ layer needs C++20: compile with -std=c++20, or set CMAKE_CXX_STANDARD to 20"
#endif

#include <cstdint>
#include <gradscaler/cpp/enums.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

/// 1 if failing calls throw, 0 in programs compiled without exceptions. All files of a program must agree.
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
#define GSC_CPP_THROWS 1
#else
#define GSC_CPP_THROWS 0
#include <atomic>
#include <cstdio>
#include <cstdlib>
#endif

namespace gradscaler {

/// What a failing call throws: the library's message, its status, and the failure in fields.
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

#if GSC_CPP_THROWS

namespace detail {

[[noreturn]] inline void fail(const Error &error) { throw error; }
[[noreturn]] inline void bad_argument(const std::string &message) { fail(Error(GSC_ERROR_INVALID_ARGUMENT, message)); }

}  // namespace detail

#else

/// Receives what would be thrown, on the thread of the failing call. If it returns, the call returns zeros or nothing,
/// and an object that could not be made is false.
using FailureHandler = void (*)(const Error &error);

namespace detail {

inline void print_and_abort(const Error &error) {
  std::fprintf(stderr, "gradscaler: %s\n", error.what());
  std::abort();
}
inline std::atomic<FailureHandler> failure_handler{&print_and_abort};

inline void fail(const Error &error) { failure_handler.load()(error); }
inline void bad_argument(const std::string &message) { fail(Error(GSC_ERROR_INVALID_ARGUMENT, message)); }

}  // namespace detail

/// Only without exceptions. Returns the handler until now; nullptr sets the first one, which prints and aborts.
inline FailureHandler set_failure_handler(FailureHandler handler) noexcept {
  return detail::failure_handler.exchange(handler != nullptr ? handler : &detail::print_and_abort);
}

#endif

namespace detail {

inline void check(gsc_status status) {
  if (status == GSC_OK) return;
  gsc_error details{};
  details.struct_size = sizeof details;
  gsc_error_get_last(&details);
  fail(Error(details, gsc_error_get_message()));
}

/// What a getter of C writes for an object.
template <typename Object, typename Value, typename... Rest>
Value read(gsc_status (*getter)(Object *, Value *, Rest...), std::type_identity_t<Object> *object,
           std::type_identity_t<Rest>... rest) {
  Value value{};
  if constexpr (requires { value.struct_size; }) value.struct_size = sizeof value;
  check(getter(object, &value, rest...));
  return value;
}

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
