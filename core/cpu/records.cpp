// SPDX-License-Identifier: Apache-2.0
// Work on records alone.
#include "core/cpu/backend.h"
#include "core/rules/report.h"

namespace gsc::cpu {

void CpuBackend::conclude(ListRecord *record, const ClipRule &rule, gsc_stream /*stream*/) {
  conclude_check(*record, rule);
}

void CpuBackend::update(ScalerRecord *record, const ListRecord *const *lists, int64_t count, gsc_stream /*stream*/) {
  UpdateSummary summary = empty_summary();
  for (int64_t i = 0; i < count; ++i) add_to_summary(summary, *lists[i]);
  conclude_update(*record, summary);
}

void CpuBackend::set_policy(ScalerRecord *record, const Policy &policy, gsc_stream /*stream*/) {
  replace_policy(*record, policy);
}

void CpuBackend::set_scale(ScalerRecord *record, float scale, gsc_stream /*stream*/) {
  store_scale(record->state, scale);
}

void CpuBackend::report(const ScalerRecord *record, const ListRecord *list, gsc_report *out, gsc_stream /*stream*/) {
  pack_report(*record, list, *out);
}

void CpuBackend::update_scale(const Policy &policy, float *scale, int32_t *growth_tracker, const float *found_inf,
                              gsc_stream /*stream*/) {
  PolicyState state{};
  state.scale = *scale;
  state.growth_tracker = *growth_tracker;
  policy_update(policy, state, *found_inf != 0.0F);
  *scale = state.scale;
  *growth_tracker = state.growth_tracker;
}

}  // namespace gsc::cpu
