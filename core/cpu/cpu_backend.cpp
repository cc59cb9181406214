// SPDX-License-Identifier: Apache-2.0
// Passes over plans on the CPU. What happens inside a chunk is the kernels' business, what a result means is
// records.h's; this file cuts, dispatches and joins in a fixed order.
#include "core/cpu/cpu_backend.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/base/error.h"
#include "core/device/join.h"
#include "core/objects/optimizer_table.h"
#include "core/rules/report.h"
#if defined(GSC_HAVE_CUDA)
#include "core/cuda/cuda_device.h"
#endif

namespace gsc::cpu {
namespace {

// Tasks per thread: enough that a late thread costs little, few enough that tasks stay large.
constexpr int32_t kTasksPerThread = 4;

// A step that moves more than this many bytes of parameters cannot leave its 16-bit copy in the caches anyway.
constexpr int64_t kStreamingBytes = int64_t{32} << 20;

char *element(const gsc_tensor &t, int64_t offset) {
  return static_cast<char *>(t.data) + offset * dtype_size(t.dtype);
}

void add_relaxed(int64_t &word, int64_t value) {
  std::atomic_ref<int64_t>(word).fetch_add(value, std::memory_order_relaxed);
}

void min_relaxed(int64_t &word, int64_t value) {
  std::atomic_ref<int64_t> ref(word);
  int64_t seen = ref.load(std::memory_order_relaxed);
  while (value < seen && !ref.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

/// Calls f(tensor, offset, elements) for chunks [begin, end) of the job, those together that lie one after the other in
/// every array and are treated alike: with thousands of tiny tensors in an arena a call each would cost more than the
/// arithmetic.
template <typename F>
void for_runs(const ApplyJob &job, int64_t begin, int64_t end, const F &f) {
  const Plan &plan = *job.grads;
  int64_t t = begin < end ? plan.tensor_of(begin) : 0;
  for (int64_t chunk = begin; chunk < end; chunk = plan.first_chunk(t)) {
    while (chunk >= plan.first_chunk(t + 1)) ++t;
    int64_t last = std::min(plan.run_end(t), job.params->run_end(t));
    if (job.model_copy != nullptr) last = std::min(last, job.model_copy->run_end(t));
    for (int i = 0; i < kMaxStates && job.state[i] != nullptr; ++i) last = std::min(last, job.state[i]->run_end(t));
    const int64_t first = t;
    const int64_t offset = (chunk - plan.first_chunk(t)) * plan.chunk_elements();
    int64_t n = -offset;
    do {
      n += plan.tensor(t++).count;
    } while (t < last && plan.first_chunk(t) < end && job.group_of[t] == job.group_of[first]);
    if (plan.first_chunk(t) > end) {  // the last tensor goes on in the next task
      --t;
      n += (end - plan.first_chunk(t)) * plan.chunk_elements() - plan.tensor(t).count;
      f(first, offset, n);
      return;
    }
    f(first, offset, n);
  }
}

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

CpuBackend::CpuBackend(std::pmr::memory_resource *memory, const Kernels *kernels, int32_t threads,
                       gsc_parallel_for_fn parallel_for, void *parallel_for_user)
    : memory_(memory), kernels_(kernels), parallel_(threads, parallel_for, parallel_for_user) {}

void *CpuBackend::allocate(int64_t bytes) {
  void *memory = memory_->allocate(static_cast<std::size_t>(bytes), kMaxAlignment);
  std::memset(memory, 0, static_cast<std::size_t>(bytes));
  return memory;
}

void CpuBackend::release(void *memory, int64_t bytes) noexcept {
  memory_->deallocate(memory, static_cast<std::size_t>(bytes), kMaxAlignment);
}

void CpuBackend::write(void *device, const void *host, int64_t bytes, gsc_stream /*stream*/) {
  std::memcpy(device, host, static_cast<std::size_t>(bytes));
}

void CpuBackend::read_sync(void *host, const void *device, int64_t bytes, gsc_stream /*stream*/) {
  std::memcpy(host, device, static_cast<std::size_t>(bytes));
}

#if defined(GSC_HAVE_CUDA)
void CpuBackend::validate_memory(const gsc_tensor *tensors, int64_t count, const char *what) {
  for (int64_t i = 0; i < count; ++i) {
    const int32_t device = tensors[i].count > 0 ? cuda::device_of(tensors[i].data) : -1;
    if (device >= 0) {
      fail(GSC_ERROR_INVALID_ARGUMENT, "%s[%lld].data is memory of CUDA device %d, but the context is of the CPU", what,
           static_cast<long long>(i), device);
    }
  }
}
#else
// Any address may be host memory; there is nothing to ask.
void CpuBackend::validate_memory(const gsc_tensor * /*tensors*/, int64_t /*count*/, const char * /*what*/) {}
#endif

int32_t CpuBackend::wanted_tasks() const {
  return parallel_.threads() == 1 ? 1 : parallel_.threads() * kTasksPerThread;
}

template <typename... F>
void CpuBackend::for_chunks(const Plan &plan, int64_t begin, int64_t end, const F &...f) {
  parallel_.run(plan.task_count(), [&](int32_t task) {
    plan.for_chunks(std::max(begin, plan.split(task)), std::min(end, plan.split(task + 1)), f...);
  });
}

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

void CpuBackend::conclude(ListRecord *record, const ClipRule &rule, gsc_stream /*stream*/) {
  conclude_check(*record, rule);
}

void CpuBackend::apply(const ApplyJob &job, gsc_stream stream) {
  run_apply(job, stream);
  if (job.update != nullptr) update(job.update, &job.checked, 1, stream);
}

void CpuBackend::run_apply(const ApplyJob &job, gsc_stream stream) {
  if (job.found_inf != nullptr && *job.found_inf != 0.0F) {
    job.record->skipped += 1;
    if (job.zero_grads) fill(*job.grads, 0.0, stream);
    return;
  }
  job.record->applied += 1;
  for (int32_t g = 0; g < job.group_count; ++g) {
    const GroupRecord &group = job.groups[g];
    const double lr = group.device_lr != nullptr ? static_cast<double>(*group.device_lr) : group.hyper.lr;
    job.coefficients[g] = make_coefficients(job.variant, group.hyper, lr, job.maximize, job.record->applied);
  }
  ApplySpan base{};
  base.inv_scale = job.inv_scale != nullptr ? *job.inv_scale : 1.0F;
  base.clip = job.clip != nullptr ? *job.clip : 1.0F;
  base.clip_value = job.clip_value;
  base.zero_grads = job.zero_grads;
  base.write_grads = job.write_grads;
  base.streaming = job.params->total_bytes() > kStreamingBytes;
  base.trust = 1.0;
  // What differs from chunk to chunk. Tensors may be tiny, so the rest of a span is filled in once a task.
  const auto aim = [&job](ApplySpan &s, int64_t tensor, int64_t offset, int64_t n) {
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
    s.coefficients = &job.coefficients[job.group_of[tensor]];
  };
  // LAMB: f(span, tensor, chunk) for every chunk of the plan.
  const auto for_spans = [&](const auto &f) {
    const Plan &plan = *job.grads;
    parallel_.run(plan.task_count(), [&](int32_t task) {
      ApplySpan s = base;
      plan.for_chunks(plan.split(task), plan.split(task + 1),
                      [&](int64_t tensor, int64_t offset, int64_t n, int64_t chunk) {
                        aim(s, tensor, offset, n);
                        f(s, tensor, chunk);
                      });
    });
  };

  Plan &plan = *job.grads;
  const auto kernel = kernels_->apply[static_cast<int>(job.variant)];
  if (job.variant != Variant::kLamb) {
    parallel_.run(plan.task_count(), [&](int32_t task) {
      ApplySpan s = base;
      for_runs(job, plan.split(task), plan.split(task + 1), [&](int64_t tensor, int64_t offset, int64_t n) {
        aim(s, tensor, offset, n);
        kernel(&s);
      });
    });
    return;
  }

  // LAMB: the moments of all chunks, then each tensor's trust ratio, then the parameters. The plan's partials hold the
  // two sums of squares meanwhile; the check has been concluded by now.
  ChunkPartial *partials = plan.partials();
  for_spans([&](ApplySpan &s, int64_t /*tensor*/, int64_t chunk) {
    kernel(&s);
    partials[chunk] = {s.sum_sq[0], s.sum_sq[1]};
  });
  for (int64_t t = 0; t < plan.size(); ++t) {
    const ChunkPartial *first = partials + plan.first_chunk(t);
    const int64_t chunks = plan.first_chunk(t + 1) - plan.first_chunk(t);
    job.trust[t] = optim::trust_ratio(join(chunks, [&](int64_t i) { return first[i].sum_sq; }),
                                      join(chunks, [&](int64_t i) { return first[i].amax; }));
  }
  for_spans([&](ApplySpan &s, int64_t tensor, int64_t /*chunk*/) {
    s.trust = job.trust[tensor];
    kernels_->lamb_apply(&s);
  });
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

void CpuBackend::linear(const LinearJob &job, gsc_stream /*stream*/) {
  Linear op = job.op;
  const double a = op == Linear::kScale ? static_cast<double>(*job.factor) : job.a;
  if (op == Linear::kScale && job.src == job.dst && a == 1.0) return;
  if (op == Linear::kAxpby && job.b == 0.0) op = Linear::kScale;  // dst is only written, NaN in it does not spread
  for_chunks(*job.dst, 0, job.dst->chunk_count(), [&](int64_t tensor, int64_t offset, int64_t n, int64_t /*chunk*/) {
    const gsc_tensor &src = job.src->tensor(tensor);
    const gsc_tensor &dst = job.dst->tensor(tensor);
    kernels_->linear({element(src, offset), element(dst, offset), n, src.dtype, dst.dtype, op, a, job.b});
  });
}

void CpuBackend::fill(const Plan &plan, double value, gsc_stream /*stream*/) {
  for_chunks(plan, 0, plan.chunk_count(), [&](int64_t tensor, int64_t offset, int64_t n, int64_t /*chunk*/) {
    const gsc_tensor &t = plan.tensor(tensor);
    char *data = element(t, offset);
    if (value == 0.0) {
      std::memset(data, 0, static_cast<std::size_t>(n * dtype_size(t.dtype)));
    } else if (t.dtype == GSC_FP64) {
      std::fill_n(reinterpret_cast<double *>(data), n, value);
    } else {
      std::fill_n(reinterpret_cast<float *>(data), n, static_cast<float>(value));
    }
  });
}

void CpuBackend::norm(Plan &plan, bool amax, double *out_norm, double *out_tensor_norms, gsc_stream /*stream*/) {
  ChunkPartial *partials = plan.partials();
  for_chunks(plan, 0, plan.chunk_count(), [&](int64_t tensor, int64_t offset, int64_t n, int64_t chunk) {
    const gsc_tensor &t = plan.tensor(tensor);
    ChunkStat stat;
    kernels_->check(t.dtype, element(t, offset), n, 1.0F, kFp64Limit, &stat);
    if (stat.inf_count > 0) stat.amax = std::numeric_limits<double>::infinity();
    if (stat.nan_count > 0) stat.amax = std::numeric_limits<double>::quiet_NaN();
    partials[chunk] = {stat.sum_sq, stat.amax};
  });
  const auto norm_of = [&](int64_t begin, int64_t end) {
    if (!amax) return std::sqrt(join(end - begin, [&](int64_t i) { return partials[begin + i].sum_sq; }));
    double largest = 0.0;
    for (int64_t i = begin; i < end; ++i) {
      if (!(partials[i].amax <= largest)) largest = partials[i].amax;  // takes a NaN ...
      if (std::isnan(largest)) break;                                  // ... and keeps it
    }
    return largest;
  };
  if (out_tensor_norms != nullptr) {
    for (int64_t t = 0; t < plan.size(); ++t) {
      out_tensor_norms[t] = norm_of(plan.first_chunk(t), plan.first_chunk(t + 1));
    }
  }
  *out_norm = norm_of(0, plan.chunk_count());
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

void CpuBackend::update_scale(const Policy &policy, float *scale, int32_t *growth_tracker, const float *found_inf,
                              gsc_stream /*stream*/) {
  PolicyState state{};
  state.scale = *scale;
  state.growth_tracker = *growth_tracker;
  policy_update(policy, state, *found_inf != 0.0F);
  *scale = state.scale;
  *growth_tracker = state.growth_tracker;
}

void CpuBackend::diagnose_sync(const Plan &plan, gsc_tensor_diagnosis *out, int64_t *histogram, gsc_stream /*stream*/) {
  std::pmr::vector<DiagnoseSpan> spans(static_cast<std::size_t>(plan.chunk_count()), memory_);
  if (histogram != nullptr) std::fill_n(histogram, plan.size() * GSC_EXPONENT_BINS, int64_t{0});
  for_chunks(plan, 0, plan.chunk_count(), [&](int64_t tensor, int64_t offset, int64_t n, int64_t chunk) {
    const gsc_tensor &t = plan.tensor(tensor);
    int64_t bins[GSC_EXPONENT_BINS] = {};
    DiagnoseSpan &span = spans[static_cast<std::size_t>(chunk)];
    span.data = element(t, offset);
    span.n = n;
    span.dtype = t.dtype;
    span.histogram = histogram != nullptr ? bins : nullptr;
    kernels_->diagnose(&span);
    if (histogram == nullptr) return;
    for (int b = 0; b < GSC_EXPONENT_BINS; ++b) {
      if (bins[b] != 0) add_relaxed(histogram[tensor * GSC_EXPONENT_BINS + b], bins[b]);
    }
  });
  for (int64_t t = 0; t < plan.size(); ++t) {
    out[t] = join_diagnoses(
        plan, t, [&](int64_t chunk) -> const DiagnoseSpan & { return spans[static_cast<std::size_t>(chunk)]; });
  }
}

}  // namespace gsc::cpu
