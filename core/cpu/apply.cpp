// SPDX-License-Identifier: Apache-2.0
// The optimizer step: spans in parallel, with the norms between two sweeps if the formula needs them.
#include <algorithm>
#include <atomic>

#include "core/cpu/backend.h"
#include "core/device/join.h"
#include "core/rules/state_codes.h"

namespace gsc::cpu {
namespace {

/// The coefficients of each tensor, for one task. Tensors of a group mostly have taken as many steps as some before.
class TensorCoefficients {
 public:
  explicit TensorCoefficients(const ApplyJob &job) : job_(job) {}

  const Coefficients<double> *of(int64_t tensor) {
    const int32_t group = job_.step.group_of[tensor];
    if (job_.step.lags == nullptr) return &job_.step.coefficients[group];
    const int64_t step = job_.step.record->applied - job_.step.lags[tensor];
    Known &known = known_[(step + group) % kKnown];
    if (known.step != step || known.group != group) {
      known = {step, group, coefficients_of(job_, group, step)};
    }
    return &known.coefficients;
  }

  static Coefficients<double> coefficients_of(const ApplyJob &job, int32_t group, int64_t step) {
    const GroupRecord &g = job.step.groups[group];
    return make_coefficients(job.step.variant, g.hyper, learning_rate(g), job.step.maximize, step);
  }

 private:
  struct Known {
    int64_t step = 0;  ///< of none: they count from 1
    int32_t group = 0;
    Coefficients<double> coefficients;
  };
  static constexpr int64_t kKnown = 32;

  const ApplyJob &job_;
  Known known_[kKnown];
};

/// The end of the tensors from `t` that are adjacent in every array, of one group and have taken as many steps.
int64_t end_of_run(const ApplyJob &job, int64_t t, int64_t limit) {
  if (job.step.coded) return t + 1;  // a tensor's groups begin with it
  int64_t last = std::min({limit, job.grads->run_end(t), job.params->run_end(t)});
  if (job.model_copy != nullptr) last = std::min(last, job.model_copy->run_end(t));
  for (int i = 0; i < kMaxStates && job.state[i] != nullptr; ++i) last = std::min(last, job.state[i]->run_end(t));
  if (job.step.group_count == 1 && job.step.lags == nullptr) return last;
  int64_t next = t + 1;
  while (next < last && job.step.group_of[next] == job.step.group_of[t] &&
         (job.step.lags == nullptr || job.step.lags[next] == job.step.lags[t])) {
    ++next;
  }
  return next;
}

/// Points a span at what state in codes has besides.
void aim_codes(ApplySpan &s, const ApplyJob &job, int64_t tensor, int64_t offset) {
  s.first = job.step.offsets[tensor] + offset;
  s.remainder = job.remainder != nullptr ? element(job.remainder->tensor(tensor), offset) : nullptr;
  for (int i = 0; i < kMaxStates && job.state[i] != nullptr; ++i) {
    s.state_dtype[i] = job.state[i]->tensor(tensor).dtype;
    const bool has_scales = is_grouped(s.state_dtype[i]);
    s.scales[i] =
        has_scales ? static_cast<uint8_t *>(job.scales[i]->tensor(tensor).data) + offset / kStateGroup : nullptr;
  }
}

}  // namespace

void CpuBackend::apply(const ApplyJob &job, gsc_stream stream) {
  run_apply(job, stream);
  if (job.step.update != nullptr) record(RecordJob::update(job.step.update, &job.step.checked, 1), stream);
}

void CpuBackend::run_apply(const ApplyJob &job, gsc_stream stream) {
  if (job.step.found_inf != nullptr && *job.step.found_inf != 0.0F) {
    job.step.record->skipped += 1;
    if (job.step.zero_grads) elementwise({Elementwise::kFill, nullptr, job.grads, 0.0, 0.0, nullptr}, stream);
    return;
  }
  job.step.record->applied += 1;
  if (job.step.lags == nullptr) {
    for (int32_t g = 0; g < job.step.group_count; ++g) {
      job.step.coefficients[g] = TensorCoefficients::coefficients_of(job, g, job.step.record->applied);
    }
  } else if (job.grads->has_absent()) {
    for (int64_t t = 0; t < job.grads->size(); ++t) job.step.lags[t] += job.grads->is_absent(t) ? 1 : 0;
  }
  ApplySpan base{};
  base.inv_scale = job.step.inv_scale != nullptr ? *job.step.inv_scale : 1.0F;
  base.clip = job.step.clip != nullptr ? *job.step.clip : 1.0F;
  base.clip_value = job.step.clip_value;
  base.zero_grads = job.step.zero_grads;
  base.write_grads = job.step.write_grads;
  base.count_unchanged = job.step.count_unchanged;
  base.prefetch = ahead_ == ReadAhead::kEightPages;  // of no use on Zen 4; not measured where a check reads otherwise
  base.streaming = job.params->total_bytes() > kStreamingBytes;
  base.ratio = 1.0;
  base.coded = job.step.coded;
  base.master = job.step.master;
  base.seed = job.step.seed;
  base.step = job.step.record->applied;
  // Tasks count apart.
  const auto add_unchanged = [&job](const ApplySpan &s) {
    if (s.count_unchanged)
      std::atomic_ref(job.step.record->unchanged).fetch_add(s.unchanged, std::memory_order_relaxed);
  };
  // Fields that differ between chunks. Tensors may be tiny, so the others are set once per task.
  const auto aim = [&job](ApplySpan &s, TensorCoefficients &coefficients, int64_t tensor, int64_t offset, int64_t n) {
    const auto place = [&](const Plan &plan) { return element(plan.tensor(tensor), offset); };
    s.n = n;
    s.param = place(*job.params);
    s.param_dtype = job.params->tensor(tensor).dtype;
    s.grad = place(*job.grads);
    s.grad_dtype = job.grads->tensor(tensor).dtype;
    if (job.model_copy != nullptr) {
      s.model_copy = place(*job.model_copy);
      s.copy_dtype = job.model_copy->tensor(tensor).dtype;
    }
    for (int i = 0; i < kMaxStates && job.state[i] != nullptr; ++i) s.state[i] = place(*job.state[i]);
    if (job.step.coded) aim_codes(s, job, tensor, offset);
    s.coefficients = coefficients.of(tensor);
  };
  // f(span, tensor, chunk) for every chunk of the tensors that are present.
  const auto for_spans = [&](const auto &f) {
    const Plan &plan = *job.grads;
    parallel_.run(plan.task_count(), [&](int32_t task) {
      ApplySpan s = base;
      TensorCoefficients coefficients(job);
      plan.for_chunks(plan.split(task), plan.split(task + 1),
                      [&](int64_t tensor, int64_t offset, int64_t n, int64_t chunk) {
                        if (n == 0) return;
                        aim(s, coefficients, tensor, offset, n);
                        f(s, tensor, chunk);
                      });
      add_unchanged(s);
    });
  };

  Plan &plan = *job.grads;
  const auto apply = kernels_->apply[static_cast<int>(job.step.variant)];
  const auto moments = kernels_->moments[static_cast<int>(job.step.variant)];
  if (moments == nullptr) {
    parallel_.run(plan.task_count(), [&](int32_t task) {
      ApplySpan s = base;
      TensorCoefficients coefficients(job);
      plan.for_runs(
          plan.split(task), plan.split(task + 1), [&](int64_t t, int64_t limit) { return end_of_run(job, t, limit); },
          [&](int64_t tensor, int64_t offset, int64_t n) {
            aim(s, coefficients, tensor, offset, n);
            apply(&s);
          });
      add_unchanged(s);
    });
    return;
  }

  // The moments of all chunks, then each tensor's ratio, then the parameters. The check is concluded by now, so the
  // plan's partials are free for the norms.
  ChunkPartial *partials = plan.partials();
  for_spans([&](ApplySpan &s, int64_t /*tensor*/, int64_t chunk) {
    moments(&s);
    partials[chunk].norms = s.norms;
  });
  for (int64_t t = 0; t < plan.size(); ++t) {
    const ChunkPartial *first = partials + plan.first_chunk(t);
    const int64_t chunks = plan.first_chunk(t + 1) - plan.first_chunk(t);
    job.step.ratios[t] = make_ratio(job.step.variant, join(chunks, [&](int64_t i) { return first[i].norms.param; }),
                                    join(chunks, [&](int64_t i) { return first[i].norms.direction; }));
  }
  for_spans([&](ApplySpan &s, int64_t tensor, int64_t /*chunk*/) {
    s.ratio = job.step.ratios[tensor];
    apply(&s);
  });
}

}  // namespace gsc::cpu
