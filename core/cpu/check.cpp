// SPDX-License-Identifier: Apache-2.0
// check and unscale: chunks in parallel, then the totals of the list in a fixed order.
#include "core/rules/check.h"

#include <algorithm>
#include <atomic>

#include "core/cpu/backend.h"
#include "core/device/join.h"

namespace gsc::cpu {
namespace {

CheckTotals join_chunks(const CheckJob &job) {
  const ListRecord &r = *job.record;
  const Plan &plan = *job.plan;
  const ChunkPartial *partials = job.plan->partials();
  CheckTotals totals = {0.0, 0.0, r.seen_inf, r.seen_nan, -1, -1};
  totals.sum_sq = join(plan.chunk_count(), [&](int64_t i) { return partials[i].sum.sum_sq; });
  constexpr int kLanes = 8;  // to break the dependency chain
  double largest[kLanes] = {};
  int64_t row = 0;
  for (; row + kLanes <= plan.chunk_count(); row += kLanes) {
    for (int i = 0; i < kLanes; ++i) largest[i] = std::max(largest[i], partials[row + i].sum.amax);
  }
  for (; row < plan.chunk_count(); ++row) largest[0] = std::max(largest[0], partials[row].sum.amax);
  totals.amax = *std::max_element(largest, largest + kLanes);
  if (r.seen_first != kNoOffender) {
    const int64_t chunk = offender_chunk(r.seen_first);
    const int64_t tensor = plan.tensor_of(chunk);
    totals.first_tensor = tensor;
    totals.first_element = (chunk - plan.first_chunk(tensor)) * plan.chunk_elements() + offender_offset(r.seen_first);
  }
  return totals;
}

void write_tensor_norms(const CheckJob &job, float inv_scale) {
  const Plan &plan = *job.plan;
  const ChunkPartial *partials = job.plan->partials();
  for (int64_t t = 0; t < plan.size(); ++t) {
    const int64_t first = plan.first_chunk(t);
    const int64_t count = plan.first_chunk(t + 1) - first;
    job.tensor_norms[t] =
        tensor_norm(join(count, [&](int64_t i) { return partials[first + i].sum.sum_sq; }), inv_scale);
  }
}

}  // namespace

void CpuBackend::check(const CheckJob &job, gsc_stream /*stream*/) {
  if (job.record == nullptr) return check_alone(job);
  ListRecord &r = *job.record;
  if (job.begin) {
    r.seen_inf = 0;
    r.seen_nan = 0;
    r.seen_first = kNoOffender;
  }
  const float inv_scale = job.inv_scale != nullptr ? *job.inv_scale : 1.0F;
  const Plan &plan = *job.plan;
  ChunkPartial *partials = job.plan->partials();
  const auto look_at = [&](int64_t tensor, int64_t offset, int64_t n, int64_t chunk) {
    if (n == 0) {  // absent
      partials[chunk].sum = {0.0, 0.0};
      return;
    }
    const Tensor &t = plan.tensor(tensor);
    ChunkStat stat;
    if (job.unscale) {
      kernels_->unscale(t.dtype, element(t, offset), n, inv_scale, plan.fp64_limit(), ahead_, &stat);
    } else {
      kernels_->check(t.dtype, element(t, offset), n, inv_scale, plan.fp64_limit(), ahead_, &stat);
    }
    partials[chunk].sum = {stat.sum_sq, stat.amax};
    if (stat.first >= 0) {
      add_relaxed(r.seen_inf, stat.inf_count);
      add_relaxed(r.seen_nan, stat.nan_count);
      min_relaxed(r.seen_first, offender_key(chunk, stat.first));
    }
  };
  // Small tensors, one chunk each, are batched into one kernel call: a call per tensor would cost more than the sums.
  const auto look_at_small = [&](int64_t tensor, int64_t chunk, int64_t end) -> int64_t {
    if (job.unscale) return 0;
    return kernels_->check_small(&plan.tensor(tensor), std::min(end - chunk, plan.size() - tensor), inv_scale,
                                 plan.fp64_limit(), partials + chunk);
  };
  for_chunks(plan, job.first_chunk, job.last_chunk, look_at, look_at_small);
  if (!job.finish) return;
  finish_check(r, join_chunks(job), inv_scale);
  if (job.tensor_norms != nullptr) write_tensor_norms(job, inv_scale);
  if (job.conclude) conclude_check(r, job.rule, job.scaler);
}

void CpuBackend::check_alone(const CheckJob &job) {
  const Plan &plan = *job.plan;
  const float inv_scale = *job.inv_scale;
  std::atomic<bool> found{false};
  for_chunks(plan, job.first_chunk, job.last_chunk, [&](int64_t tensor, int64_t offset, int64_t n, int64_t /*chunk*/) {
    const Tensor &t = plan.tensor(tensor);
    ChunkStat stat;
    kernels_->unscale(t.dtype, element(t, offset), n, inv_scale, kFp64Limit, ahead_, &stat);
    if (stat.first >= 0) found.store(true, std::memory_order_relaxed);
  });
  if (found.load(std::memory_order_relaxed)) *job.found_inf = 1.0F;
}

}  // namespace gsc::cpu
