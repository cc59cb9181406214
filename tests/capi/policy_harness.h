// SPDX-License-Identifier: Apache-2.0
//
// Drives a scaler's policy without training anything: one gradient that is finite or not, checked and updated. Shared
// by the suites on policy options, presets and scaler state.
#ifndef GRADSCALER_TESTS_CAPI_POLICY_HARNESS_H
#define GRADSCALER_TESTS_CAPI_POLICY_HARNESS_H
#include <sstream>
#include <string>

#include "tests/support/objects.h"

namespace gsc_test {

class Policy {
 public:
  explicit Policy(const gsc_scaler_options &options)
      : context_(make_context()),
        grad_(GSC_FP32, 1),
        list_(make_list(context_, grad_)),
        scaler_(make_scaler(context_, options)) {}

  operator gsc_scaler *() const { return scaler_; }
  Context &context() { return context_; }
  gsc_tensor_list *list() const { return list_; }
  float scale() const { return scale_of(scaler_); }
  gsc_report report() const { return report_of(scaler_); }
  bool at_floor() const { return (report().flags & GSC_REPORT_AT_FLOOR) != 0; }

  void update(bool overflow) {
    grad_.set(0, overflow ? kInf : 1.0);
    ASSERT_GSC_OK(gsc_scaler_check(scaler_, list_, nullptr));
    ASSERT_GSC_OK(gsc_scaler_update(scaler_, nullptr));
  }
  /// One update for each letter: '.' is clean, 'x' is an overflow. Returns the scales after each as text, "8 8 16".
  std::string run(const std::string &pattern) {
    std::ostringstream scales;
    scales.precision(9);
    for (const char letter : pattern) {
      update(letter == 'x');
      scales << (scales.tellp() > 0 ? " " : "") << scale();
    }
    return scales.str();
  }

 private:
  Context context_;
  Buffer grad_;
  List list_;
  Scaler scaler_;
};

}  // namespace gsc_test
#endif
