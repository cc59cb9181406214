// SPDX-License-Identifier: Apache-2.0
// The optimizer step: spans in parallel, with the norms between two sweeps if the formula needs them.
#include <algorithm>
#include <atomic>

#include "core/cpu/backend.h"
#include "core/device/join.h"
#include "core/rules/state_codes.h"
#include "core/rules/step_coefficients.h"

namespace gsc::cpu {
namespace {

/// Elements of a step whose parameters are still in a cache when their average reads them. With fewer,
/// memory streams restart so often that a separate pass would be as fast.
constexpr int64_t kEmaSlice = 65536;

/// The coefficients of each tensor, for one task. Tensors of a group mostly have taken as many steps as some before.
class TensorCoefficients {
 public:
  explicit TensorCoefficients(const ApplyJob &job) : job_(job) {}

  const Coefficients<double> *of(int64_t tensor) {
    if (job_.step.averages) return &job_.step.coefficients[tensor];
    const int32_t group = job_.step.group_of[tensor];
    if (job_.step.lags == nullptr) return &job_.step.coefficients[group];
    const int64_t step = step_number(job_.step) - job_.step.lags[tensor];
    Known &known = known_[(step + group) % kKnown];
    if (known.step != step || known.group != group) {
      known = {step, group, group_coefficients(job_.step, job_.step.groups[group], step)};
    }
    return &known.coefficients;
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
  // Groups of codes begin with their tensor, and formulas that average have coefficients for each tensor.
  if (job.step.coded || job.step.averages) return t + 1;
  int64_t last = std::min({limit, job.grads->run_end(t), job.params->run_end(t)});
  if (job.model_copy != nullptr) last = std::min(last, job.model_copy->run_end(t));
  if (job.ema != nullptr) last = std::min(last, job.ema->run_end(t));
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
void point_at_codes(ApplySpan &s, const ApplyJob &job, int64_t tensor, int64_t offset) {
  s.first = job.step.offsets[tensor] + offset;
  s.remainder = job.remainder != nullptr ? element(job.remainder->tensor(tensor), offset) : nullptr;
  for (int i = 0; i < kMaxStates && job.state[i] != nullptr; ++i) {
    s.state_dtype[i] = job.state[i]->tensor(tensor).dtype;
    const int64_t scale_bytes = scale_size(s.state_dtype[i]);
    s.scales[i] = scale_bytes > 0
                      ? static_cast<char *>(job.scales[i]->tensor(tensor).data) + offset / kStateGroup * scale_bytes
                      : nullptr;
  }
}

/// Coefficients of all tensors that are present, for a formula that averages.
void prepare_averages(const ApplyJob &job) {
  Average before{};  // of the tensor before, which most are like
  int64_t known = -1;
  for (int64_t t = 0; t < job.grads->size(); ++t) {
    if (job.grads->tensor(t).count == 0 || job.grads->is_absent(t)) continue;
    auto &average = *static_cast<Average *>(job.numbers->tensor(t).data);
    const int64_t lag = job.step.lags != nullptr ? job.step.lags[t] : 0;
    if (known >= 0 && job.step.group_of[t] == job.step.group_of[known] &&
        (job.step.lags == nullptr || lag == job.step.lags[known]) && average.lr_max == before.lr_max &&
        average.weight_sum == before.weight_sum) {
      average = *static_cast<Average *>(job.numbers->tensor(known).data);
      job.step.coefficients[t] = job.step.coefficients[known];
      continue;
    }
    known = t;
    before = average;
    job.step.coefficients[t] =
        average_coefficients(job.step, job.step.groups[job.step.group_of[t]], step_number(job.step) - lag, average);
  }
}

/// What a step needs before its sweeps.
void prepare_coefficients(const ApplyJob &job) {
  if (!has_tensor_coefficients(job.step)) {
    for (int32_t g = 0; g < job.step.group_count; ++g) {
      job.step.coefficients[g] = group_coefficients(job.step, job.step.groups[g], step_number(job.step));
    }
  } else if (job.step.lags != nullptr && job.grads->has_absent()) {
    for (int64_t t = 0; t < job.grads->size(); ++t) job.step.lags[t] += job.grads->is_absent(t) ? 1 : 0;
  }
  if (job.step.averages) prepare_averages(job);
}

/// Each tensor's ratio, from the norms in the plan's partials. Not inlined: its table of coefficients would take as much
/// of the stack during the sweeps.
[[gnu::noinline]] void make_ratios(const ApplyJob &job) {
  const Plan &plan = *job.grads;
  TensorCoefficients coefficients(job);
  for (int64_t t = 0; t < plan.size(); ++t) {
    if (plan.is_absent(t)) continue;
    const ChunkPartial *first = job.grads->partials() + plan.first_chunk(t);
    const int64_t chunks = plan.first_chunk(t + 1) - plan.first_chunk(t);
    if (job.numbers != nullptr && plan.tensor(t).count == 0) continue;
    double none = 0.0;
    double *number = job.numbers != nullptr ? static_cast<double *>(job.numbers->tensor(t).data) : &none;
    job.step.ratios[t] =
        make_ratio(job.step.variant, join(chunks, [&](int64_t i) { return first[i].norms.param; }),
                   join(chunks, [&](int64_t i) { return first[i].norms.direction; }), *coefficients.of(t), number);
  }
}

/// How many bytes ahead a step fetches. On Zen 4 and 5 only formulas with a sweep for norms gain by it.
int prefetch_distance(ReadAhead ahead, Variant variant) {
  if (ahead == ReadAhead::kEightPages) return 1024;
  return ahead == ReadAhead::kNextTile && needs_norms(variant) ? 3072 : 0;
}

}  // namespace

void CpuBackend::apply(const ApplyJob &job, gsc_stream stream) {
  const StepPart &part = job.part;
  const bool skip = job.step.found_inf != nullptr && *job.step.found_inf != 0.0F;
  if (!skip) {
    if (part.prepare) prepare_coefficients(job);
    run_apply(job);
  } else if (part.apply && job.step.zero_grads) {
    zero_chunks(*job.grads, part.first_chunk, part.last_chunk);
  }
  if (!part.finish) return;
  count_step(job.step, skip);
  if (job.step.update == nullptr) return;
  const ListRecord *const checked = job.step.checked;
  record({.kind = RecordJob::Kind::kUpdate, .scaler = job.step.update, .lists = &checked, .list_count = 1}, stream);
}

void CpuBackend::zero_chunks(const Plan &plan, int64_t begin, int64_t end) {
  for_tasks(plan, begin, end, [&](int64_t first, int64_t last) {
    const auto run_end = [&](int64_t t, int64_t limit) { return std::min(limit, plan.run_end(t)); };
    plan.for_runs(first, last, run_end, [&](int64_t tensor, int64_t offset, int64_t n) {
      const Tensor &t = plan.tensor(tensor);
      kernels_->elementwise({nullptr, element(t, offset), n, t.dtype, t.dtype, Elementwise::kFill, 0.0, 0.0,
                             plan.total_bytes() > kStreamingBytes, in_places_});
    });
  });
}

void CpuBackend::run_apply(const ApplyJob &job) {
  const StepPart &part = job.part;
  ApplySpan base{};
  base.inv_scale = job.step.inv_scale != nullptr ? *job.step.inv_scale : 1.0F;
  base.clip = job.step.clip != nullptr ? *job.step.clip : 1.0F;
  base.clip_value = job.step.clip_value;
  base.zero_grads = job.step.zero_grads;
  base.write_grads = job.step.write_grads;
  base.count_unchanged = job.step.count_unchanged;
  base.prefetch_bytes = prefetch_distance(ahead_, job.step.variant);
  base.streaming = job.params->total_bytes() > kStreamingBytes;
  base.ratio = 1.0;
  base.coded = job.step.coded;
  base.master = job.step.master;
  base.seed = job.step.seed;
  base.step = step_number(job.step);
  // Tasks count apart.
  const auto add_unchanged = [&job](const ApplySpan &s) {
    if (s.count_unchanged)
      std::atomic_ref(job.step.record->unchanged).fetch_add(s.unchanged, std::memory_order_relaxed);
  };
  // Fields that differ between chunks. Tensors may be tiny, so the others are set once per task.
  const auto point_at = [&job](ApplySpan &s, TensorCoefficients &coefficients, int64_t tensor, int64_t offset,
                               int64_t n) {
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
    if (job.ema != nullptr) s.ema = place(*job.ema);
    if (job.step.coded) point_at_codes(s, job, tensor, offset);
    s.coefficients = coefficients.of(tensor);
  };
  // The last sweep over n elements, and their average.
  const auto apply = kernels_->sweeps[static_cast<int>(job.step.variant)]->apply;
  const auto step = [&](ApplySpan &s, TensorCoefficients &coefficients, int64_t tensor, int64_t offset, int64_t n) {
    const int64_t slice = job.ema != nullptr ? std::min(n, kEmaSlice) : n;
    for (int64_t i = 0; i < n; i += slice) {
      point_at(s, coefficients, tensor, offset + i, std::min(slice, n - i));
      apply(&s);
      if (job.ema != nullptr) kernels_->average_weights(&s);
    }
  };
  // f(span, coefficients, tensor, offset, n, chunk) for every chunk of the tensors that are present.
  const auto for_spans = [&](const ApplySpan &first, const auto &f) {
    for_tasks(*job.grads, part.first_chunk, part.last_chunk, [&](int64_t begin, int64_t end) {
      ApplySpan s = first;
      TensorCoefficients coefficients(job);
      job.grads->for_chunks(begin, end, [&](int64_t tensor, int64_t offset, int64_t n, int64_t chunk) {
        if (n > 0) f(s, coefficients, tensor, offset, n, chunk);
      });
      add_unchanged(s);
    });
  };

  Plan &plan = *job.grads;
  const auto moments = kernels_->sweeps[static_cast<int>(job.step.variant)]->moments;
  if (moments == nullptr) {
    if (!part.apply) return;
    for_tasks(plan, part.first_chunk, part.last_chunk, [&](int64_t begin, int64_t end) {
      ApplySpan s = base;
      TensorCoefficients coefficients(job);
      plan.for_runs(
          begin, end, [&](int64_t t, int64_t limit) { return end_of_run(job, t, limit); },
          [&](int64_t tensor, int64_t offset, int64_t n) { step(s, coefficients, tensor, offset, n); });
      add_unchanged(s);
    });
    return;
  }

  // The moments of all chunks, then each tensor's ratio, then the parameters. The check is concluded by now, so the
  // plan's partials are free for the norms.
  ChunkPartial *partials = plan.partials();
  ApplySpan reading = base;
  if (gradients_last(job.step.variant)) reading.zero_grads = reading.write_grads = false;
  if (part.moments) {
    for_spans(reading, [&](ApplySpan &s, TensorCoefficients &coefficients, int64_t tensor, int64_t offset, int64_t n,
                           int64_t chunk) {
      point_at(s, coefficients, tensor, offset, n);
      moments(&s);
      partials[chunk].norms = s.norms;
    });
  }
  if (part.ratios) make_ratios(job);
  if (!part.apply) return;
  for_spans(base, [&](ApplySpan &s, TensorCoefficients &coefficients, int64_t tensor, int64_t offset, int64_t n,
                      int64_t /*chunk*/) {
    s.ratio = job.step.ratios[tensor];
    step(s, coefficients, tensor, offset, n);
  });
}

}  // namespace gsc::cpu
