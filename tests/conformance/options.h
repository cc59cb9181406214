// SPDX-License-Identifier: Apache-2.0
//
// Reads gsc_scaler_options and the small enumerations of a scenario file from JSON. Unknown keys are errors, so that a
// misspelt option cannot pass unnoticed.
#ifndef GRADSCALER_TESTS_CONFORMANCE_OPTIONS_H
#define GRADSCALER_TESTS_CONFORMANCE_OPTIONS_H
#include <map>
#include <utility>
#include <variant>

#include "files.h"
#include "tests/support/objects.h"

namespace gsc_test {

/// The value that belongs to a word; an unknown word is an error.
inline int32_t word_value(const std::string &word, std::initializer_list<std::pair<const char *, int32_t>> table) {
  for (const auto &[name, value] : table) {
    if (word == name) return value;
  }
  throw std::runtime_error("unknown word \"" + word + "\"");
}

inline int32_t dtype_of(const std::string &word) {
  return word_value(word, {{"fp16", GSC_FP16}, {"bf16", GSC_BF16}, {"fp32", GSC_FP32}, {"fp64", GSC_FP64}});
}

inline gsc_status status_of(const std::string &word) {
  return word_value(word, {{"ok", GSC_OK},
                           {"invalid_argument", GSC_ERROR_INVALID_ARGUMENT},
                           {"bad_state", GSC_ERROR_BAD_STATE},
                           {"unsupported", GSC_ERROR_UNSUPPORTED},
                           {"scale_floor", GSC_ERROR_SCALE_FLOOR}});
}

inline int32_t preset_of(const std::string &word) {
  return word_value(word, {{"torch", GSC_PRESET_TORCH},
                           {"apex", GSC_PRESET_APEX},
                           {"apex_hysteresis", GSC_PRESET_APEX_HYSTERESIS},
                           {"megatron", GSC_PRESET_MEGATRON},
                           {"deepspeed", GSC_PRESET_DEEPSPEED},
                           {"tensorflow", GSC_PRESET_TENSORFLOW},
                           {"keras", GSC_PRESET_KERAS},
                           {"flax", GSC_PRESET_FLAX},
                           {"jmp", GSC_PRESET_JMP},
                           {"paddle", GSC_PRESET_PADDLE},
                           {"mindspore", GSC_PRESET_MINDSPORE},
                           {"fairseq", GSC_PRESET_FAIRSEQ},
                           {"oneflow", GSC_PRESET_ONEFLOW},
                           {"colossalai", GSC_PRESET_COLOSSALAI}});
}

inline uint32_t flags_of(const Json &words) {
  uint32_t flags = 0;
  for (const Json &flag : words) {
    flags |= static_cast<uint32_t>(word_value(word(flag), {{"grow_on_equal", GSC_SCALER_GROW_ON_EQUAL},
                                                           {"no_finite_guard", GSC_SCALER_NO_FINITE_GUARD},
                                                           {"floor_exclusive", GSC_SCALER_FLOOR_EXCLUSIVE},
                                                           {"fp32_products", GSC_SCALER_FP32_PRODUCTS}}));
  }
  return flags;
}

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
    o.hysteresis_refill = word_value(word(value), {{"on_growth", GSC_REFILL_ON_GROWTH},
                                                   {"on_clean_step", GSC_REFILL_ON_CLEAN_STEP},
                                                   {"consecutive", GSC_REFILL_CONSECUTIVE}});
  } else if (key == "growth_timing") {
    o.growth_timing = word_value(word(value), {{"at_interval", GSC_GROWTH_AT_INTERVAL},
                                               {"one_later", GSC_GROWTH_ONE_LATER},
                                               {"first_one_later", GSC_GROWTH_FIRST_ONE_LATER}});
  } else if (key == "floor_action") {
    o.floor_action =
        word_value(word(value), {{"clamp", GSC_FLOOR_CLAMP}, {"report", GSC_FLOOR_REPORT}, {"error", GSC_FLOOR_ERROR}});
  } else if (key == "flags") {
    o.flags = flags_of(value);
  } else {
    throw std::runtime_error("unknown option \"" + key + "\"");
  }
}

/// Options over `base`, or over a preset where the object names one.
inline gsc_scaler_options read_options(const Json &object, const gsc_scaler_options &base) {
  gsc_scaler_options options = base;
  if (const Json *preset = find(object, "preset")) options = preset_options(preset_of(word(*preset)));
  for (const auto &[key, value] : object.items()) {
    if (key != "preset") read_option(options, key, value);
  }
  return options;
}

}  // namespace gsc_test
#endif
