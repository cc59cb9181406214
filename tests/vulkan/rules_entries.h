// SPDX-License-Identifier: Apache-2.0
// The entries of rules_test besides the functions of core/vulkan/rules.h that need no memory: rules that kernels reach
// through records, and the arithmetic of exact.glsl.
#pragma once

#include "core/vulkan/rules.h"

namespace gsc::vulkan {

GSC_HD float divide_float(float a, float b) { return a / b; }
GSC_HD double divide_double(double a, double b) { return a / b; }
GSC_HD float root_float(float x) { return square_root(x); }
GSC_HD float multiply_add_float(float a, float b, float c) { return multiply_add(a, b, c); }
GSC_HD double multiply_add_double(double a, double b, double c) { return multiply_add(a, b, c); }
GSC_HD float float_of_double(double x) { return static_cast<float>(x); }
GSC_HD int64_t round_trip(int64_t count) { return static_cast<int64_t>(static_cast<double>(count)); }

GSC_HD Coefficients<double> coefficients_of_variant(Variant variant, const Hyper &hyper, double lr, bool maximize,
                                                    int64_t step) {
  if (averages_iterates(variant)) return {};  // see below
  return make_coefficients(variant, hyper, lr, maximize, step, {});
}
GSC_HD Coefficients<double> coefficients_of_average(Variant variant, const Hyper &hyper, double lr, int64_t step,
                                                    Average &average) {
  const Averaging a = advance_average(hyper, lr, step, average);
  return make_coefficients(variant, hyper, a.lr, false, step, a);
}
GSC_HD Coefficients<float> narrowed(const Coefficients<double> &c) { return narrow<float>(c); }
GSC_HD void update_policy(const Policy &policy, PolicyState &state, bool overflow, bool spike) {
  policy_update(policy, state, overflow ? Verdict::kOverflow : (spike ? Verdict::kSpike : Verdict::kClean));
}
GSC_HD void conclude(ListRecord &record, const ClipRule &rule) { conclude_check(record, rule, nullptr); }
/// A number of 16 bits that a norm or a factor can be.
GSC_HD double above_one(uint32_t x) { return 1.0 + static_cast<double>(x & 0xffffU) * 0x1p-8; }
GSC_HD bool judge_spike(uint32_t norm, uint32_t rule_of, uint32_t average_of, NormAverage &average) {
  SpikeRule rule = {0.0, above_one(rule_of >> 8), above_one(rule_of >> 4) * 0x1p-5, 16, 0, 3, GSC_SPIKE_STEP};
  if ((rule_of & 1U) != 0) rule.norm = 0x1p4;
  if ((rule_of & 2U) != 0) rule.action = GSC_SPIKE_ERROR;
  average.mean = above_one(average_of) * 0x1p-4;
  average.variance = above_one(average_of >> 7) * 0x1p-6;
  average.run_mean = above_one(average_of >> 13) * 0x1p-4;
  average.count = average_of & 31U;
  average.run = static_cast<int32_t>((average_of >> 5) & 7U) - 4;
  return is_spike(rule, above_one(norm), average);
}
GSC_HD void finish(ListRecord &record, const CheckTotals &totals, float inv_scale) {
  finish_check(record, totals, inv_scale);
}
GSC_HD void summarize(UpdateSummary &summary, const ListRecord &record) { add_to_summary(summary, record); }
GSC_HD uint32_t flash_code(bool of_square, float x, uint32_t scale) {
  return of_square ? FlashSquare::encode(x, scale & 0x7bffU) : FlashMoment::encode(x, scale & 0x7bffU);
}
GSC_HD float flash_value_of(bool of_square, uint32_t code, uint32_t scale) {
  return of_square ? FlashSquare::decode(code & 0xffU, scale & 0xffffU)
                   : FlashMoment::decode(code & 0xffU, scale & 0xffffU);
}
GSC_HD uint32_t flash_scale_of(bool of_square, uint32_t largest) {
  return of_square ? FlashSquare::scale_for(largest) : FlashMoment::scale_for(largest);
}
GSC_HD int32_t remainder_beside(bool is_fp16, bool is_wide, float master, uint32_t weight) {
  const auto half = static_cast<uint16_t>(weight);
  if (is_wide) return is_fp16 ? remainder_of<Fp16, int16_t>(master, half) : remainder_of<Bf16, int16_t>(master, half);
  return is_fp16 ? remainder_of<Fp16, int8_t>(master, half) : remainder_of<Bf16, int8_t>(master, half);
}

}  // namespace gsc::vulkan
