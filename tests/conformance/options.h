// SPDX-License-Identifier: Apache-2.0
//
// Reads gsc_scaler_options and the words of a scenario file from JSON. Unknown keys and words are errors, so that a
// misspelt option cannot pass unnoticed.
#ifndef GRADSCALER_TESTS_CONFORMANCE_OPTIONS_H
#define GRADSCALER_TESTS_CONFORMANCE_OPTIONS_H
#include <map>
#include <variant>

#include "files.h"
#include "tests/support/objects.h"

namespace gsc_test {

/// The constant of the header that a word names: "on_growth" of GSC_REFILL_ is GSC_REFILL_ON_GROWTH.
inline int32_t constant(std::string prefix, const std::string &word) {
  static const std::map<std::string, int64_t> all = {
#define GSC_LAYOUT_SIZE(size)
#define GSC_LAYOUT_FIELD(field, offset)
#define GSC_LAYOUT_VALUE(name, value) {#name, value},
#include "tests/abi/layout.inc"
  };
  for (const unsigned char c : word) prefix += static_cast<char>(std::toupper(c));
  const auto found = all.find(prefix);
  if (found == all.end()) throw std::runtime_error("unknown word \"" + word + "\"");
  return static_cast<int32_t>(found->second);
}

inline gsc_status status_of(const std::string &word) { return word == "ok" ? GSC_OK : constant("GSC_ERROR_", word); }

/// Writes one option. Enumerations are words.
inline void read_option(gsc_scaler_options &o, const std::string &key, const Json &value) {
  const std::map<std::string, std::variant<float *, double *, int32_t *>> numbers = {
      {"init_scale", &o.init_scale},
      {"min_scale", &o.min_scale},
      {"max_scale", &o.max_scale},
      {"growth_interval", &o.growth_interval},
      {"growth_factor", &o.growth_factor},
      {"backoff_factor", &o.backoff_factor},
      {"enabled", &o.enabled},
      {"hysteresis", &o.hysteresis},
      {"overflow_tolerance", &o.overflow_tolerance},
      {"recovery_threshold", &o.recovery_threshold},
      {"recovery_interval", &o.recovery_interval},
      {"floor_patience", &o.floor_patience},
      {"history_capacity", &o.history_capacity},
  };
  if (const auto found = numbers.find(key); found != numbers.end()) {
    std::visit(
        [&](auto *field) {
          using T = std::remove_pointer_t<decltype(field)>;
          if constexpr (std::is_integral_v<T>) {
            const int64_t wide = integer(value);
            if (wide != static_cast<T>(wide)) throw std::runtime_error("expected an integer of 32 bits");
            *field = static_cast<T>(wide);
          } else {
            *field = static_cast<T>(number(value));
          }
        },
        found->second);
  } else if (key == "hysteresis_refill") {
    o.hysteresis_refill = constant("GSC_REFILL_", word(value));
  } else if (key == "growth_timing") {
    o.growth_timing = constant("GSC_GROWTH_", word(value));
  } else if (key == "floor_action") {
    o.floor_action = constant("GSC_FLOOR_", word(value));
  } else if (key == "flags") {
    o.flags = 0;
    for (const Json &flag : value) o.flags |= static_cast<uint32_t>(constant("GSC_SCALER_", word(flag)));
  } else {
    throw std::runtime_error("unknown option \"" + key + "\"");
  }
}

/// Options over `base`, or over a preset where the object names one.
inline gsc_scaler_options read_options(const Json &object, const gsc_scaler_options &base) {
  gsc_scaler_options options = base;
  if (const Json *preset = find(object, "preset")) options = preset_options(constant("GSC_PRESET_", word(*preset)));
  for (const auto &[key, value] : object.items()) {
    if (key != "preset") read_option(options, key, value);
  }
  return options;
}

}  // namespace gsc_test
#endif
