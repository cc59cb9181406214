// SPDX-License-Identifier: Apache-2.0
//
// A small JSON reader for the scenario files: values, parser, and look-ups that say what is missing. Unlike the libraries,
// it refuses a key that stands twice, reads the strings "inf" and "nan" as numbers, and needs no package. Errors are
// exceptions with the line, so that a mistake in a file fails its test with a sentence. Strings know the escapes for a
// quote, a backslash, a slash, a newline and a tab; scenario files are plain ASCII.
#ifndef GRADSCALER_TESTS_SUPPORT_JSON_H
#define GRADSCALER_TESTS_SUPPORT_JSON_H
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace gsc_test {

class Json {
 public:
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  static Json parse(const std::string &text) {
    Parser parser{text};
    Json value = parser.value();
    parser.skip_space();
    if (parser.at != text.size()) parser.fail("text after the end");
    return value;
  }

  Kind kind() const { return kind_; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }
  bool boolean() const { return expect(Kind::kBool, "true or false"), number_ != 0.0; }
  const std::string &string() const { return expect(Kind::kString, "a string"), string_; }
  const std::vector<Json> &items() const { return expect(Kind::kArray, "an array"), items_; }
  const std::vector<std::pair<std::string, Json>> &members() const {
    return expect(Kind::kObject, "an object"), members_;
  }
  /// A number, or one of the strings "inf", "-inf" and "nan", which JSON has no numbers for.
  double number() const {
    if (kind_ == Kind::kString) {
      if (string_ == "inf") return std::numeric_limits<double>::infinity();
      if (string_ == "-inf") return -std::numeric_limits<double>::infinity();
      if (string_ == "nan") return std::numeric_limits<double>::quiet_NaN();
    }
    return expect(Kind::kNumber, "a number"), number_;
  }
  int64_t integer() const {
    const double value = number();
    // Within what a double counts exactly; also keeps the conversion defined.
    if (!(value >= -0x1p53 && value <= 0x1p53) || value != std::trunc(value)) {
      throw std::runtime_error("expected an integer");
    }
    return static_cast<int64_t>(value);
  }

  /// The member, or NULL.
  const Json *find(const std::string &key) const {
    for (const auto &[name, value] : members()) {
      if (name == key) return &value;
    }
    return nullptr;
  }
  const Json &at(const std::string &key) const {
    const Json *value = find(key);
    if (value == nullptr) throw std::runtime_error("missing \"" + key + "\"");
    return *value;
  }

 private:
  struct Parser {
    static constexpr int kDeepest = 64;  // far below what the stack holds
    const std::string &text;
    size_t at = 0;
    int depth = 0;

    [[noreturn]] void fail(const char *what) const {
      size_t line = 1;
      for (size_t i = 0; i < at && i < text.size(); ++i) line += text[i] == '\n' ? 1 : 0;
      throw std::runtime_error("line " + std::to_string(line) + ": " + what);
    }
    void skip_space() {
      while (at < text.size() && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t')) ++at;
    }
    char peek() {
      skip_space();
      return at < text.size() ? text[at] : '\0';
    }
    bool take(char c) {
      if (peek() != c) return false;
      ++at;
      return true;
    }
    bool take_word(const char *word) {
      const std::string expected = word;
      if (text.compare(at, expected.size(), expected) != 0) return false;
      at += expected.size();
      return true;
    }
    std::string quoted() {
      std::string result;
      if (!take('"')) fail("expected a string");
      for (; at < text.size() && text[at] != '"'; ++at) {
        char c = text[at];
        if (c == '\\') {
          c = ++at < text.size() ? text[at] : '\0';
          if (c == 'n') {
            c = '\n';
          } else if (c == 't') {
            c = '\t';
          } else if (c != '"' && c != '\\' && c != '/') {
            fail("unknown escape");
          }
        }
        result += c;
      }
      if (!take('"')) fail("string without end");
      return result;
    }
    Json value() {
      if (++depth > kDeepest) fail("nested too deeply");
      Json result = any_value();
      --depth;
      return result;
    }
    Json any_value() {
      Json result;
      switch (peek()) {
        case '{':
          result.kind_ = Kind::kObject;
          ++at;
          if (take('}')) return result;
          do {
            std::string key = (skip_space(), quoted());
            if (!take(':')) fail("expected ':'");
            if (result.find(key) != nullptr) fail("the same key twice");
            result.members_.emplace_back(std::move(key), value());
          } while (take(','));
          if (!take('}')) fail("expected ',' or '}'");
          return result;
        case '[':
          result.kind_ = Kind::kArray;
          ++at;
          if (take(']')) return result;
          do {
            result.items_.push_back(value());
          } while (take(','));
          if (!take(']')) fail("expected ',' or ']'");
          return result;
        case '"':
          result.kind_ = Kind::kString;
          result.string_ = quoted();
          return result;
        default:
          return literal();
      }
    }
    Json literal() {
      Json result;
      if (take_word("null")) return result;
      const bool is_true = take_word("true");
      if (is_true || take_word("false")) {
        result.kind_ = Kind::kBool;
        result.number_ = is_true ? 1.0 : 0.0;
        return result;
      }
      char *end = nullptr;
      const char *start = text.c_str() + at;
      if (*start != '-' && (*start < '0' || *start > '9')) fail("expected a value");
      result.kind_ = Kind::kNumber;
      result.number_ = std::strtod(start, &end);
      // strtod knows more than JSON: hexadecimal digits, words.
      const auto is_json = [](char c) {
        return (c >= '0' && c <= '9') || (c != '\0' && std::strchr("+-.eE", c) != nullptr);
      };
      if (end == start || !std::all_of(start, static_cast<const char *>(end), is_json)) fail("expected a number");
      at += static_cast<size_t>(end - start);
      return result;
    }
  };

  void expect(Kind kind, const char *what) const {
    if (kind_ != kind) throw std::runtime_error(std::string("expected ") + what);
  }

  Kind kind_ = Kind::kNull;
  double number_ = 0.0;
  std::string string_;
  std::vector<Json> items_;
  std::vector<std::pair<std::string, Json>> members_;
};

}  // namespace gsc_test
#endif
