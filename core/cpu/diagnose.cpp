// SPDX-License-Identifier: Apache-2.0
// Statistics of every tensor.
#include <algorithm>
#include <optional>
#include <vector>

#include "core/cpu/backend.h"
#include "core/device/join.h"

namespace gsc::cpu {
namespace {

/// A task's histogram of one tensor at a time, added to the tensor's when the task goes on to another. It is not
/// cleared for every chunk: compilers clear arrays of this size by rep stos, which on Zen 4 waits for outstanding
/// reads.
class TensorBins {
 public:
  /// `histogram` has GSC_EXPONENT_BINS counters for each tensor.
  explicit TensorBins(int64_t *histogram) : histogram_(histogram) {
    std::fill_n(counts_, GSC_EXPONENT_BINS, int64_t{0});
  }

  int64_t *of(int64_t tensor) {
    if (tensor != tensor_) flush();
    tensor_ = tensor;
    return counts_;
  }

  void flush() {
    if (tensor_ < 0) return;
    for (int64_t b = 0; b < GSC_EXPONENT_BINS; ++b) {
      if (counts_[b] == 0) continue;
      add_relaxed(histogram_[tensor_ * GSC_EXPONENT_BINS + b], counts_[b]);
      counts_[b] = 0;
    }
  }

 private:
  int64_t *histogram_;
  int64_t tensor_ = -1;
  int64_t counts_[GSC_EXPONENT_BINS];
};

}  // namespace

void CpuBackend::diagnose_sync(const DiagnoseJob &job, gsc_stream /*stream*/) {
  const Plan &plan = *job.plan;
  std::pmr::vector<ChunkDiagnosis> chunks(plan.chunk_count(), memory_);
  if (job.histogram != nullptr) std::fill_n(job.histogram, plan.size() * GSC_EXPONENT_BINS, int64_t{0});
  // Other ways are slower than none, or not measured.
  const ReadAhead ahead = ahead_ == ReadAhead::kEightPages ? ahead_ : ReadAhead::kNone;
  parallel_.run(plan.task_count(), [&](int32_t task) {
    std::optional<TensorBins> bins;
    if (job.histogram != nullptr) bins.emplace(job.histogram);
    plan.for_chunks(
        plan.split(task), plan.split(task + 1), [&](int64_t tensor, int64_t offset, int64_t n, int64_t chunk) {
          const Tensor &t = plan.tensor(tensor);
          ChunkDiagnosis &found = chunks[chunk];
          if (n == 0) {  // absent
            found.first_nonfinite = -1;
            return;
          }
          kernels_->diagnose(t.dtype, element(t, offset), n, ahead, bins ? bins->of(tensor) : nullptr, &found);
        });
    if (bins) bins->flush();
  });
  for (int64_t t = 0; t < plan.size(); ++t) job.out[t] = join_diagnoses(plan, t, chunks);
}

}  // namespace gsc::cpu
