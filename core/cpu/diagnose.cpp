// SPDX-License-Identifier: Apache-2.0
// Statistics of every tensor.
#include <algorithm>
#include <vector>

#include "core/cpu/backend.h"
#include "core/device/join.h"

namespace gsc::cpu {

void CpuBackend::diagnose_sync(const DiagnoseJob &job, gsc_stream /*stream*/) {
  const Plan &plan = *job.plan;
  int64_t *histogram = job.histogram;
  std::pmr::vector<DiagnoseSpan> spans(static_cast<std::size_t>(plan.chunk_count()), memory_);
  if (histogram != nullptr) std::fill_n(histogram, plan.size() * GSC_EXPONENT_BINS, int64_t{0});
  for_chunks(plan, 0, plan.chunk_count(), [&](int64_t tensor, int64_t offset, int64_t n, int64_t chunk) {
    const Tensor &t = plan.tensor(tensor);
    int64_t bins[GSC_EXPONENT_BINS] = {};
    DiagnoseSpan &span = spans[static_cast<std::size_t>(chunk)];
    span.data = element(t, offset);
    span.n = n;
    span.dtype = t.dtype;
    // Other ways are slower than none, or not measured.
    span.ahead = ahead_ == ReadAhead::kEightPages ? ahead_ : ReadAhead::kNone;
    span.histogram = histogram != nullptr ? bins : nullptr;
    kernels_->diagnose(&span);
    if (histogram == nullptr) return;
    for (int b = 0; b < GSC_EXPONENT_BINS; ++b) {
      if (bins[b] != 0) add_relaxed(histogram[tensor * GSC_EXPONENT_BINS + b], bins[b]);
    }
  });
  for (int64_t t = 0; t < plan.size(); ++t) {
    job.out[t] = join_diagnoses(
        plan, t, [&](int64_t chunk) -> const DiagnoseSpan & { return spans[static_cast<std::size_t>(chunk)]; });
  }
}

}  // namespace gsc::cpu
