// SPDX-License-Identifier: Apache-2.0
//
// What a scenario acts on: one scaler, and for each list of gradients its parameters and an SGD optimizer with learning
// rate 1. `act` carries out one event and judges its status and expectations.
#ifndef GRADSCALER_TESTS_CONFORMANCE_WORLD_H
#define GRADSCALER_TESTS_CONFORMANCE_WORLD_H
#include <map>
#include <memory>

#include "options.h"

namespace gsc_test {

struct GradientList {
  GradientList(const Context &context, int32_t dtype, const std::vector<int64_t> &counts)
      : grads(make_buffers(dtype, counts)),
        params(make_buffers(GSC_FP32, counts)),
        grad_list(make_list(context, grads)),
        param_list(make_list(context, params)) {
    optimizer = make_optimizer(context, sgd_options(), param_list, grad_list);
  }
  std::vector<Buffer> grads, params;
  List grad_list, param_list;
  Optimizer optimizer;
};

class World {
 public:
  explicit World(const Json &file) : context_(make_context(1)) {
    const gsc_scaler_options defaults = GSC_SCALER_OPTIONS_INIT;
    options_ = read_options(file.at("scaler"), defaults);
    scaler_ = make_scaler(context_, options_);
    const Json *lists = find(file, "lists");
    if (lists == nullptr) {
      add_list("model", GSC_FP32, {4});
      return;
    }
    for (const auto &[name, description] : lists->items()) {
      std::vector<int64_t> counts;
      for (const Json &count : description.at("counts")) counts.push_back(integer(count));
      add_list(name, constant("GSC_", word(description.at("dtype"))), counts);
    }
  }

  void act(const Json &event) {
    const Json *status = find(event, "status");
    const gsc_status expected = status == nullptr ? GSC_OK : status_of(word(*status));
    const gsc_status got = perform(event);
    ASSERT_EQ(got, expected) << gsc_error_get_message();
    if (const Json *expect = find(event, "expect")) {
      for (const auto &[key, value] : expect->items()) {
        SCOPED_TRACE(key);
        judge(key, value);
      }
    }
  }

 private:
  void add_list(const std::string &name, int32_t dtype, const std::vector<int64_t> &counts) {
    names_.push_back(name);
    lists_.emplace(name, std::make_unique<GradientList>(context_, dtype, counts));
  }
  GradientList &list(const std::string &name) {
    const auto found = lists_.find(name);
    if (found == lists_.end()) throw std::runtime_error("no list \"" + name + "\"");
    return *found->second;
  }
  GradientList &list_of(const Json &event) {
    if (const Json *name = find(event, "list")) return list(word(*name));
    if (names_.size() != 1) throw std::runtime_error("missing \"list\"");
    return list(names_.front());
  }

  gsc_status perform(const Json &event) {
    const std::string action = word(event.at("do"));
    gsc_scaler *const s = scaler_.get();
    if (action == "update") return gsc_scaler_update(s, nullptr);
    if (action == "set_scale") return gsc_scaler_set_scale(s, static_cast<float>(number(event.at("scale"))), nullptr);
    if (action == "set_options") return set_options(event.at("options"));
    if (action == "save") return save(word(event.at("as")));
    if (action == "restore") return gsc_scaler_set_state(s, &saved_.at(word(event.at("from"))), nullptr);
    if (action == "new_scaler") return new_scaler(event);
    if (action == "run") return run(event);
    if (action == "discard") {
      return gsc_scaler_discard(s, find(event, "list") == nullptr ? nullptr : list_of(event).grad_list.get());
    }
    return perform_on(list_of(event), action, event);
  }

  gsc_status perform_on(GradientList &target, const std::string &action, const Json &event) {
    gsc_scaler *const s = scaler_.get();
    gsc_tensor_list *const grads = target.grad_list.get();
    if (action == "fill") return fill(target, event);
    if (action == "plant") {
      Buffer &buffer = target.grads.at(static_cast<size_t>(integer(event.at("tensor"))));
      const int64_t element = integer(event.at("element"));
      if (element < 0 || element >= buffer.count()) throw std::runtime_error("no such element");
      buffer.set(element, number(event.at("value")));
      return GSC_OK;
    }
    if (action == "unscale") return gsc_scaler_unscale(s, grads, nullptr);
    if (action == "check") return gsc_scaler_check(s, grads, nullptr);
    if (action == "check_range") {
      return gsc_scaler_check_range(s, grads, integer(event.at("first")), integer(event.at("count")), nullptr);
    }
    if (action == "clip_norm") {
      const int32_t type = constant("GSC_NORM_", word(event.at("norm")));
      return gsc_scaler_clip_grad_norm(s, grads, number(event.at("max_norm")), type, nullptr);
    }
    if (action == "clip_value") return gsc_scaler_clip_grad_value(s, grads, number(event.at("value")), nullptr);
    if (action == "step") return gsc_scaler_step(s, target.optimizer.get(), nullptr);
    if (action == "step_and_update") return gsc_scaler_step_and_update(s, target.optimizer.get(), nullptr);
    if (action == "should_step") return gsc_scaler_should_step_sync(s, grads, &apply_, nullptr);
    throw std::runtime_error("unknown event \"" + action + "\"");
  }

  gsc_status fill(GradientList &target, const Json &event) {
    const Json *raw = find(event, "value");
    const double value =
        raw != nullptr ? number(*raw) : number(event.at("true_value")) * static_cast<double>(scale_of(scaler_));
    for (Buffer &buffer : target.grads) buffer.fill(value);
    return GSC_OK;
  }
  gsc_status set_options(const Json &changes) {
    gsc_scaler_options now = GSC_SCALER_OPTIONS_INIT;
    const gsc_status status = gsc_scaler_get_options(scaler_.get(), &now);
    if (status != GSC_OK) return status;
    now = read_options(changes, now);
    return gsc_scaler_set_options(scaler_.get(), &now, nullptr);
  }
  gsc_status save(const std::string &name) {
    auto state = with_size<gsc_scaler_state>();
    const gsc_status status = gsc_scaler_get_state_sync(scaler_.get(), &state, nullptr);
    if (status == GSC_OK) saved_[name] = state;
    return status;
  }
  gsc_status new_scaler(const Json &event) {
    const gsc_scaler_options defaults = GSC_SCALER_OPTIONS_INIT;
    const Json *described = find(event, "scaler");
    const gsc_scaler_options options = described == nullptr ? options_ : read_options(*described, defaults);
    gsc_scaler *fresh = nullptr;
    const gsc_status status = gsc_scaler_create(context_.get(), &options, &fresh);
    if (status == GSC_OK) scaler_.reset(fresh);
    return status;
  }
  gsc_status run(const Json &event) {
    const std::string pattern = word(event.at("pattern"));
    const Json &scales = event.at("scales");
    if (scales.size() != pattern.size()) throw std::runtime_error("one scale for each letter of the pattern");
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i] != '.' && pattern[i] != 'x') throw std::runtime_error("a pattern is made of '.' and 'x'");
      const double scale = static_cast<double>(scale_of(scaler_));
      for (const std::string &name : names_) {
        for (Buffer &buffer : list(name).grads) buffer.fill(scale);
      }
      if (pattern[i] == 'x') list(names_.front()).grads.front().set(0, kInf);
      for (const std::string &name : names_) {
        const gsc_status status = gsc_scaler_step(scaler_.get(), list(name).optimizer.get(), nullptr);
        if (status != GSC_OK) return status;
      }
      const gsc_status status = gsc_scaler_update(scaler_.get(), nullptr);
      if (status != GSC_OK) return status;
      EXPECT_EQ(scale_of(scaler_), static_cast<float>(number(scales[i]))) << "letter " << i << " of " << pattern;
    }
    return GSC_OK;
  }

  /// The report, whether or not it comes with SCALE_FLOOR.
  gsc_report report(const gsc_tensor_list *grads = nullptr) {
    auto result = with_size<gsc_report>();
    const gsc_status status = gsc_scaler_get_report_sync(scaler_.get(), grads, &result, nullptr);
    floor_error_ = status == GSC_ERROR_SCALE_FLOOR;
    EXPECT_TRUE(status == GSC_OK || floor_error_) << gsc_error_get_message();
    return result;
  }

  static void expect_number(double got, double expected) {
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << got;
    } else if (std::isinf(expected)) {
      EXPECT_EQ(got, expected);
    } else {
      EXPECT_NEAR(got, expected, 1e-6 * std::fabs(expected));
    }
  }

  /// What a scenario can expect of a report, by name. A flag is 0 or 1.
  static std::map<std::string, double> numbers_of(const gsc_report &r) {
    const auto whole = [](int64_t value) { return static_cast<double>(value); };
    return {{"growth_tracker", r.growth_tracker},
            {"hysteresis_tracker", r.hysteresis_tracker},
            {"consecutive_skips", r.consecutive_skips},
            {"updates", whole(r.updates)},
            {"skipped", whole(r.skipped)},
            {"overflow", (r.flags & GSC_REPORT_OVERFLOW) != 0 ? 1.0 : 0.0},
            {"at_floor", (r.flags & GSC_REPORT_AT_FLOOR) != 0 ? 1.0 : 0.0},
            {"nonfinite", whole(r.nonfinite_count)},
            {"inf", whole(r.inf_count)},
            {"nan", whole(r.nan_count)},
            {"first_tensor", whole(r.first_tensor)},
            {"first_element", whole(r.first_element)},
            {"norm", r.grad_norm},
            {"amax", r.grad_amax}};
  }

  void judge(const std::string &key, const Json &value) {
    if (key == "scale") {
      EXPECT_EQ(scale_of(scaler_), static_cast<float>(number(value)));
    } else if (key == "inv_scale") {
      auto words = with_size<gsc_device_state>();
      ASSERT_GSC_OK(gsc_scaler_get_device_state(scaler_.get(), nullptr, &words));
      EXPECT_EQ(*words.inv_scale, static_cast<float>(number(value)));
    } else if (key == "floor_error") {
      report();
      EXPECT_EQ(floor_error_, value.get<bool>());
    } else if (key == "apply") {
      EXPECT_EQ(apply_, integer(value));
    } else if (key == "history") {
      judge_history(value);
    } else if (!value.is_object()) {
      expect_value(numbers_of(report()).at(key), value);
    } else {
      for (const auto &[name, expected] : value.items()) {
        SCOPED_TRACE(name);
        judge_list(key, list(name), expected);
      }
    }
  }

  static void expect_value(double got, const Json &value) {
    expect_number(got, value.is_boolean() ? (value.get<bool>() ? 1.0 : 0.0) : number(value));
  }

  void judge_list(const std::string &key, GradientList &target, const Json &value) {
    if (key == "params") {
      judge_elements(target.params, value);
    } else if (key == "grads") {
      judge_elements(target.grads, value);
    } else if (key == "steps") {
      EXPECT_EQ(applied_steps(target.optimizer), integer(value.at(0)));
      EXPECT_EQ(skipped_steps(target.optimizer), integer(value.at(1)));
    } else if (key == "report") {
      const std::map<std::string, double> numbers = numbers_of(report(target.grad_list.get()));
      for (const auto &[field, expected] : value.items()) {
        SCOPED_TRACE(field);
        expect_value(numbers.at(field), expected);
      }
    } else {
      throw std::runtime_error("unknown expectation \"" + key + "\"");
    }
  }

  static void judge_elements(const std::vector<Buffer> &buffers, const Json &value) {
    size_t at = 0;
    for (const Buffer &buffer : buffers) {
      for (int64_t i = 0; i < buffer.count(); ++i, ++at) {
        expect_number(buffer.get(i), number(value.is_array() ? value.at(at) : value));
      }
    }
    if (value.is_array()) {
      EXPECT_EQ(at, value.size());
    }
  }

  void judge_history(const Json &value) {
    std::vector<gsc_history_entry> entries(value.size());
    int64_t count = -1;
    ASSERT_GSC_OK(gsc_scaler_get_history_sync(scaler_.get(), entries.data(), static_cast<int64_t>(entries.size()),
                                              &count, nullptr));
    ASSERT_EQ(count, static_cast<int64_t>(entries.size()));
    for (size_t i = 0; i < entries.size(); ++i) {
      const Json &expected = value[i];
      EXPECT_EQ(entries[i].update, integer(expected.at(0)));
      EXPECT_EQ(entries[i].scale, static_cast<float>(number(expected.at(1))));
      EXPECT_EQ(entries[i].overflow, integer(expected.at(2)));
    }
  }

  Context context_;
  gsc_scaler_options options_;
  Scaler scaler_;
  std::vector<std::string> names_;
  std::map<std::string, std::unique_ptr<GradientList>> lists_;
  std::map<std::string, gsc_scaler_state> saved_;
  int32_t apply_ = -1;
  bool floor_error_ = false;
};

}  // namespace gsc_test
#endif
