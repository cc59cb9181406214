// SPDX-License-Identifier: Apache-2.0
// The only exception of the core. It has the fields of gsc_error, and a sentence in a buffer of fixed size, so
// reporting an error needs no memory beyond the exception object. The C ABI turns it into a gsc_status (capi/guard.h).
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <exception>

#include "gradscaler/gradscaler.h"

namespace gsc {

/// Text with static storage, for errors keep addresses of names. Only a literal converts to it.
class Literal {
 public:
  consteval Literal(const char *text) : text_(text) {}  // NOLINT(google-explicit-constructor): meant to convert
  constexpr const char *text() const { return text_; }

 private:
  const char *text_;
};

/// The subject of a failure, by the names of gradscaler.h: "grads", "options" with the field "lr", "state" at slot 1
/// with tensor 7. The sentence begins with it: `options.lr`, `state[1][7]`.
class Argument {
 public:
  consteval Argument(const char *name) : name_(name) {}  // NOLINT(google-explicit-constructor): meant to convert
  /// The entry of an array other than tensors.
  constexpr Argument at(int64_t index) const {
    Argument entry = *this;
    entry.index_ = index;
    return entry;
  }
  /// The tensor of a list, or of an array of tensors.
  constexpr Argument tensor(int64_t index) const {
    Argument entry = *this;
    entry.tensor_ = first_ + index;
    return entry;
  }
  /// The tensors from `first` on, for a function that counts them from 0.
  constexpr Argument from(int64_t first) const {
    Argument rest = *this;
    rest.first_ = first;
    return rest;
  }
  /// The field of a struct.
  constexpr Argument field(Literal name) const {
    Argument member = *this;
    if (has_fields_) member.field_ = name.text();
    return member;
  }
  /// For an array whose entries are values of a field of tensors.
  constexpr Argument without_fields() const {
    Argument bare = *this;
    bare.has_fields_ = false;
    return bare;
  }

  /// As it stands in sentences: "state[1][7].dtype".
  class Text {
   public:
    const char *c_str() const { return text_; }

   private:
    friend class Argument;
    char text_[128];  // names are literals, and far shorter
  };
  Text text() const {
    Text out;
    char *at = out.text_;
    const auto room = [&] { return static_cast<std::size_t>(out.text_ + sizeof out.text_ - at); };
    at += std::snprintf(at, room(), "%s", name_);
    if (index_ >= 0) at += std::snprintf(at, room(), "[%lld]", static_cast<long long>(index_));
    if (tensor_ >= 0) at += std::snprintf(at, room(), "[%lld]", static_cast<long long>(tensor_));
    if (*field_ != '\0') std::snprintf(at, room(), ".%s", field_);
    return out;
  }
  gsc_error with(gsc_status status) const { return {sizeof(gsc_error), status, "", name_, field_, index_, tensor_}; }

 private:
  const char *name_;
  const char *field_ = "";
  int64_t index_ = -1;
  int64_t tensor_ = -1;
  int64_t first_ = 0;
  bool has_fields_ = true;
};

/// For failures of a whole call.
inline constexpr Argument kNoArgument{""};
/// Most structs of options are called this.
inline constexpr Argument kOptions{"options"};

class Error final : public std::exception {
 public:
  Error(gsc_status status, const Argument &about, const char *format, std::va_list arguments) noexcept
      : details_(about.with(status)) {
    const Argument::Text text = about.text();
    char *at = message_ + std::snprintf(message_, sizeof message_, *text.c_str() != '\0' ? "%s " : "%s", text.c_str());
    std::vsnprintf(at, message_ + sizeof message_ - at, format, arguments);
  }
  /// All fields but the function, which the entry point adds.
  const gsc_error &details() const noexcept { return details_; }
  const char *what() const noexcept override { return message_; }

 private:
  gsc_error details_;
  char message_[448] = "";
};

/// Throws an Error. The sentence is the argument followed by the printf-style rest: fail(s, "lr", "is %d", lr).
/// Numbers that are not integers go through Decimal (decimal.h).
[[noreturn, gnu::format(printf, 3, 4), gnu::cold]] inline void fail(gsc_status status, const Argument &about,
                                                                    const char *format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const Error error(status, about, format, arguments);
  va_end(arguments);
  throw error;
}

/// The same with GSC_ERROR_INVALID_ARGUMENT.
[[noreturn, gnu::format(printf, 2, 3), gnu::cold]] inline void refuse(const Argument &about, const char *format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const Error error(GSC_ERROR_INVALID_ARGUMENT, about, format, arguments);
  va_end(arguments);
  throw error;
}

}  // namespace gsc
