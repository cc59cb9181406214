// SPDX-License-Identifier: Apache-2.0
// check, unscale and the stand-alone unscale: chunks in parallel, then the totals of the list in a fixed order.
#include <algorithm>
#include <atomic>

#include "core/cpu/backend.h"
#include "core/device/join.h"

namespace gsc::cpu {
namespace {

void finish_check(const CheckJob &job, float inv_scale) {
  ListRecord &r = *job.record;
  const ChunkPartial *partials = job.plan->partials();
  const int64_t chunks = job.plan->chunk_count();
  const auto inv = static_cast<double>(inv_scale);
  double amax = 0.0;
  for (int64_t i = 0; i < chunks; ++i) amax = std::max(amax, partials[i].amax);
  r.reduce[0] = static_cast<double>(r.seen_inf + r.seen_nan);
  r.reduce[1] = join(chunks, [&](int64_t i) { return partials[i].sum_sq; }) * inv * inv;
  r.grad_amax = amax * inv;
  r.inf_count = r.seen_inf;
  r.nan_count = r.seen_nan;
  r.first_tensor = -1;
  r.first_element = -1;
  if (r.seen_first != kNoOffender) {
    const int64_t chunk = r.seen_first >> 16;
    r.first_tensor = job.plan->tensor_of(chunk);
    r.first_element =
        (chunk - job.plan->first_chunk(r.first_tensor)) * job.plan->chunk_elements() + (r.seen_first & 0xffff);
  }
}

}  // namespace

void CpuBackend::check(const CheckJob &job, gsc_stream /*stream*/) {
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
    const gsc_tensor &t = plan.tensor(tensor);
    ChunkStat stat;
    if (job.unscale) {
      kernels_->unscale(t.dtype, element(t, offset), n, inv_scale, plan.fp64_limit(), &stat);
    } else {
      kernels_->check(t.dtype, element(t, offset), n, inv_scale, plan.fp64_limit(), &stat);
    }
    partials[chunk] = {stat.sum_sq, stat.amax};
    if (stat.first >= 0) {
      add_relaxed(r.seen_inf, stat.inf_count);
      add_relaxed(r.seen_nan, stat.nan_count);
      min_relaxed(r.seen_first, offender_key(chunk, stat.first));
    }
  };
  // Small tensors, of a chunk each, go to the kernel many at a time: a call a tensor would cost more than the sums.
  const auto look_at_small = [&](int64_t tensor, int64_t chunk, int64_t end) -> int64_t {
    if (job.unscale) return 0;
    return kernels_->check_small(&plan.tensor(tensor), std::min(end - chunk, plan.size() - tensor), inv_scale,
                                 plan.fp64_limit(), partials + chunk);
  };
  for_chunks(plan, job.first_chunk, job.last_chunk, look_at, look_at_small);
  if (!job.finish) return;
  finish_check(job, inv_scale);
  if (job.conclude) conclude_check(r, job.rule);
}

void CpuBackend::unscale_check(const Plan &plan, float *found_inf, const float *inv_scale, gsc_stream /*stream*/) {
  const float inv = *inv_scale;
  std::atomic<bool> found{false};
  for_chunks(plan, 0, plan.chunk_count(), [&](int64_t tensor, int64_t offset, int64_t n, int64_t /*chunk*/) {
    const gsc_tensor &t = plan.tensor(tensor);
    ChunkStat stat;
    kernels_->unscale(t.dtype, element(t, offset), n, inv, kFp64Limit, &stat);
    if (stat.first >= 0) found.store(true, std::memory_order_relaxed);
  });
  if (found.load(std::memory_order_relaxed)) *found_inf = 1.0F;
}

}  // namespace gsc::cpu
