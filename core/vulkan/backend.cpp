// SPDX-License-Identifier: Apache-2.0
// The backend interface: each call fills in the arguments of kernels and records them. Steps mean the same, in the same
// order, as on the CPU backend.
#include "core/vulkan/backend.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/device/join.h"

namespace gsc::vulkan {
namespace {

template <typename T>
T *at(uint64_t address) {
  return reinterpret_cast<T *>(address);
}

int64_t round_up(int64_t bytes) { return (bytes + 63) & ~int64_t{63}; }

/// The layout of a plan's tables.
struct TableLayout {
  explicit TableLayout(const Plan &plan)
      : tensor_of(round_up(plan.size() * int64_t{sizeof(DeviceTensor)})),
        results(tensor_of + round_up(plan.chunk_count() * int64_t{sizeof(int32_t)})),
        tickets(results + round_up(plan.chunk_count() * int64_t{sizeof(ChunkResult)})),
        bytes(tickets + round_up(sizeof(Tickets))) {}
  int64_t tensor_of;
  int64_t results;
  int64_t tickets;
  int64_t bytes;
};

/// Parts of chunks in sweeps: enough to fill a device, none below 1024 elements.
int32_t split_of(const Plan &plan) {
  int32_t split = 0;
  while (plan.chunk_count() << split < 1024 && plan.chunk_elements() >> split > 1024 && split < 8) ++split;
  return split;
}

/// Threads of a workgroup that takes a chunk, and of one that takes a part of a chunk. One size each: drivers take long to
/// compile a kernel.
constexpr int32_t kChunkThreads = 256;
constexpr int32_t kPartThreads = 64;

PlanView view_of(const Plan &plan, uint64_t tables) {
  const TableLayout layout(plan);
  const auto shift = std::countr_zero(static_cast<uint64_t>(plan.chunk_elements()));
  return {at<DeviceTensor>(tables),
          at<int32_t>(tables + layout.tensor_of),
          plan.size(),
          plan.chunk_count(),
          shift,
          split_of(plan)};
}

const Mirror *mirror_of(const Plan &plan) { return static_cast<const Mirror *>(plan.mirror()); }
const DeviceTensor *tensors_of(const Plan *plan) { return plan != nullptr ? mirror_of(*plan)->tensors : nullptr; }

/// The tables that the host writes, up to `results`, in the plan's memory for this.
const Vec<int64_t> &fill_tables(const Plan &plan, void *const *data) {
  const TableLayout layout(plan);
  Vec<int64_t> &out = plan.backend_memory();
  out.assign(static_cast<std::size_t>(layout.results) / sizeof(int64_t), 0);
  auto *tensors = reinterpret_cast<DeviceTensor *>(out.data());
  auto *tensor_of = reinterpret_cast<int32_t *>(reinterpret_cast<char *>(out.data()) + layout.tensor_of);
  for (int64_t i = 0; i < plan.size(); ++i) {
    const Tensor &t = plan.bound(i);
    tensors[i] = {data != nullptr ? data[i] : plan.tensor(i).data, t.count, plan.first_chunk(i), t.dtype, 0};
    std::fill(tensor_of + plan.first_chunk(i), tensor_of + plan.first_chunk(i + 1), static_cast<int32_t>(i));
  }
  return out;
}

/// Scratch memory for a plan's tables.
int64_t table_bytes(const Plan &plan) { return mirror_of(plan) != nullptr ? 0 : TableLayout(plan).bytes; }

/// A plan as kernels see it: its mirror, or tables that are sent along, to `scratch`.
class PlanOnDevice {
 public:
  PlanOnDevice(const Plan &plan, uint64_t scratch) : scratch_(scratch) {
    if (const Mirror *mirror = mirror_of(plan)) {
      view_ = mirror->view;
      results_ = mirror->results;
      return;
    }
    view_ = view_of(plan, scratch);
    results_ = at<ChunkResult>(scratch + TableLayout(plan).results);
    tables_ = &fill_tables(plan, nullptr);
  }
  const PlanView &view() const { return view_; }
  ChunkResult *results() const { return results_; }
  void record(Recording &recording) const {
    if (tables_ == nullptr) return;
    recording.barrier();
    recording.update(scratch_, tables_->data(), static_cast<int64_t>(tables_->size() * sizeof(int64_t)));
  }

 private:
  PlanView view_{};
  ChunkResult *results_ = nullptr;
  const Vec<int64_t> *tables_ = nullptr;
  uint64_t scratch_;
};

}  // namespace

VulkanBackend::VulkanBackend(std::pmr::memory_resource *memory, const gsc_context_options &options,
                             const gscx_vulkan_device *given)
    : memory_(memory), device_(options, given), recorder_(memory, device_) {}

void VulkanBackend::require_no_commands(gsc_stream stream, const char *what) const {
  if (stream == nullptr) return;
  fail(GSC_ERROR_BAD_STATE, "stream",
       "is a command buffer, but %s waits for the device: pass NULL once the work before it has been submitted", what);
}

void *VulkanBackend::allocate(int64_t bytes) {
  uint64_t address = 0;
  try {
    Recording recording(recorder_, nullptr, "clearing new memory");
    address = recorder_.take(bytes);
    recording.barrier();
    recording.fill_zero(address, bytes);
    recording.finish(true);
  } catch (...) {
    if (address != 0) recorder_.give_back(address, bytes);
    throw;
  }
  return at<void>(address);
}

void VulkanBackend::release(void *memory, int64_t bytes) noexcept {
  recorder_.give_back(reinterpret_cast<uint64_t>(memory), bytes);
}

void VulkanBackend::write(void *device, const void *host, int64_t bytes, gsc_stream stream) {
  Recording recording(recorder_, stream, "writing to the device");
  recording.barrier();
  recording.update(reinterpret_cast<uint64_t>(device), host, bytes);
  recording.finish();
}

void VulkanBackend::write_sync(void *device, const void *host, int64_t bytes, gsc_stream stream) {
  const char *what = "writing to the device";
  require_no_commands(stream, what);
  for (int64_t done = 0; done < bytes; done += Recorder::kStagingBytes) {
    const int64_t part = std::min(bytes - done, Recorder::kStagingBytes);
    Recording recording(recorder_, nullptr, what);
    std::memcpy(recorder_.staging.mapped, static_cast<const char *>(host) + done, static_cast<std::size_t>(part));
    recording.add(Kernel::kCopy, (part + kCopyBytes - 1) / kCopyBytes, 64,
                  CopyArgs{at<uint8_t>(recorder_.staging.address), static_cast<uint8_t *>(device) + done, part});
    recording.run();
    recording.finish(true);
  }
}

void VulkanBackend::read_sync(void *host, const void *device, int64_t bytes, gsc_stream stream) {
  const char *what = "reading from the device";
  require_no_commands(stream, what);
  for (int64_t done = 0; done < bytes; done += Recorder::kStagingBytes) {
    const int64_t part = std::min(bytes - done, Recorder::kStagingBytes);
    Recording recording(recorder_, nullptr, what);
    recording.add(Kernel::kCopy, (part + kCopyBytes - 1) / kCopyBytes, 64,
                  CopyArgs{static_cast<const uint8_t *>(device) + done, at<uint8_t>(recorder_.staging.address), part});
    recording.run();
    recording.barrier_to_host();
    recording.finish(true);
    std::memcpy(static_cast<char *>(host) + done, recorder_.staging.mapped, static_cast<std::size_t>(part));
  }
}

void VulkanBackend::copy_from(void *to, const Backend &source, const void *from, int64_t bytes, gsc_stream stream) {
  if (&source != this) {
    fail(GSC_ERROR_UNSUPPORTED, kNoArgument,
         "lists of another context under one scaler are not supported on Vulkan; make all lists in the scaler's "
         "context");
  }
  Recording recording(recorder_, stream, "copying");
  recording.add(Kernel::kCopy, (bytes + kCopyBytes - 1) / kCopyBytes, 64,
                CopyArgs{static_cast<const uint8_t *>(from), static_cast<uint8_t *>(to), bytes});
  recording.run();
  recording.finish();
}

void VulkanBackend::bind(Plan &plan) {
  const TableLayout layout(plan);
  const Vec<int64_t> &tables = fill_tables(plan, nullptr);
  void *host = memory_->allocate(sizeof(Mirror), alignof(Mirror));
  void *device = nullptr;
  try {
    device = allocate(layout.bytes);
    write(device, tables.data(), layout.results, nullptr);
    finish_setup();
  } catch (...) {
    if (device != nullptr) release(device, layout.bytes);
    memory_->deallocate(host, sizeof(Mirror), alignof(Mirror));
    throw;
  }
  const auto address = reinterpret_cast<uint64_t>(device);
  Mirror m{};
  m.view = view_of(plan, address);
  m.tensors = at<DeviceTensor>(address);
  m.results = at<ChunkResult>(address + layout.results);
  m.tickets = at<Tickets>(address + layout.tickets);
  for (int64_t i = 0; i < plan.size(); ++i) (is_wide(plan.tensor(i).dtype) ? m.has_fp64 : m.has_others) = true;
  plan.set_mirror(new (host) Mirror(m));
}

void VulkanBackend::rebind(const Plan &plan, void *const *data, gsc_stream stream) {
  write(mirror_of(plan)->tensors, fill_tables(plan, data).data(), plan.size() * int64_t{sizeof(DeviceTensor)}, stream);
}

void VulkanBackend::unbind(Plan &plan) noexcept {
  auto *mirror = static_cast<Mirror *>(plan.mirror());
  if (mirror == nullptr) return;
  release(mirror->tensors, TableLayout(plan).bytes);
  memory_->deallocate(mirror, sizeof(Mirror), alignof(Mirror));
  plan.set_mirror(nullptr);
}

void VulkanBackend::check(const CheckJob &job, gsc_stream stream) {
  const Plan &plan = *job.plan;
  if (job.record == nullptr && plan.chunk_count() == 0) return;
  Recording recording(recorder_, stream, job.unscale ? "unscaling" : "the check");
  const PlanOnDevice on_device(plan, recording.scratch(table_bytes(plan)));
  CheckArgs a{};
  a.plan = on_device.view();
  a.inv_scale = job.inv_scale;
  a.first_chunk = job.first_chunk;
  a.last_chunk = job.last_chunk;
  a.fp64_limit = kFp64Limit;
  a.found_inf = job.found_inf;
  if (job.record != nullptr) {
    a.results = on_device.results();
    a.tickets = mirror_of(plan)->tickets;
    a.record = job.record;
    a.fp64_limit = plan.fp64_limit();
    a.rule = job.rule;
    a.scaler = job.scaler;
    a.finish = job.finish;
    a.conclude = job.conclude;
  }
  recording.add(Kernel::kCheck, job.last_chunk - job.first_chunk, kChunkThreads, a,
                static_cast<int32_t>(job.unscale ? CheckSpecial::kUnscale : CheckSpecial::kRead));
  if (job.finish && job.tensor_norms != nullptr) {
    recording.add(Kernel::kNorm, plan.size(), 256,
                  NormArgs{a.plan, a.results, a.inv_scale, nullptr, job.tensor_norms, false});
  }
  on_device.record(recording);
  recording.run();
  recording.finish();
}

void VulkanBackend::apply(const ApplyJob &job, gsc_stream stream) {
  const Mirror &grads = *mirror_of(*job.grads);
  const Mirror &params = *mirror_of(*job.params);
  const StepPart &part = job.part;
  ApplyArgs a{};
  a.grads = grads.view;
  a.params = params.tensors;
  a.model_copy = tensors_of(job.model_copy);
  for (int s = 0; s < kMaxStates; ++s) {
    a.state[s] = tensors_of(job.state[s]);
    a.scales[s] = tensors_of(job.scales[s]);
  }
  a.remainder = tensors_of(job.remainder);
  a.numbers = tensors_of(job.numbers);
  a.ema = tensors_of(job.ema);
  a.results = grads.results;
  a.tickets = grads.tickets;
  a.step = job.step;
  a.first_chunk = part.first_chunk;
  a.last_chunk = part.last_chunk;
  a.gradients_last = gradients_last(job.step.variant);

  Recording recording(recorder_, stream, "the step");
  const auto sweep = static_cast<int32_t>(traits(job.step.variant).sweep);
  const int64_t chunks = part.last_chunk - part.first_chunk;
  const bool coded = job.step.coded;
  if (part.prepare) {
    recording.add(Kernel::kPrepare, (prepare_rows(a) + 63) / 64, 64, a, static_cast<int32_t>(job.step.variant));
  }
  if (needs_norms(job.step.variant) && part.moments) {
    const Kernel others = coded ? Kernel::kMomentsCoded : Kernel::kMomentsFp32;
    if (params.has_others) recording.add(others, chunks, kChunkThreads, a, sweep);
    if (params.has_fp64) recording.add(Kernel::kMomentsFp64, chunks, kChunkThreads, a, sweep);
  }
  if (needs_norms(job.step.variant) && part.ratios) {
    recording.add(Kernel::kRatios, a.grads.size, 64, a, static_cast<int32_t>(job.step.variant));
  }
  if (part.apply) {
    const Kernel others = coded ? Kernel::kApplyCoded : Kernel::kApplyFp32;
    const int64_t work = chunks << a.grads.split;
    a.finish = part.finish && !params.has_fp64;
    if (params.has_others || !params.has_fp64) recording.add(others, work, kPartThreads, a, sweep);
    a.finish = part.finish;
    if (params.has_fp64) recording.add(Kernel::kApplyFp64, work, kPartThreads, a, sweep);
  }
  recording.run();
  recording.finish();
}

void VulkanBackend::record(const RecordJob &job, gsc_stream stream) {
  static_assert(sizeof(gsc_report) == 120, "programs have no struct_size there: new fields are left out of the kernel");
  constexpr int64_t kMostLists = 512;
  RecordArgs a{};
  a.job = job;
  a.last = true;
  Recording recording(recorder_, stream, job.kind == RecordJob::Kind::kUpdate ? "the update" : "setting the scaler");
  if (job.kind != RecordJob::Kind::kUpdate) {
    recording.add(Kernel::kRecord, 1, 32, a);
    recording.run();
    if (job.kind == RecordJob::Kind::kReport) recording.barrier_to_host();
  }
  for (int64_t first = 0; job.kind == RecordJob::Kind::kUpdate && (first < job.list_count || first == 0);
       first += kMostLists) {
    a.job.list_count = std::min(job.list_count - first, kMostLists);
    a.job.lists =
        at<const ListRecord *const>(recording.send(job.lists + first, a.job.list_count * int64_t{sizeof(void *)}));
    a.more = first > 0;
    a.last = first + a.job.list_count == job.list_count;
    recording.add(Kernel::kRecord, 1, 32, a);
    recording.run();
  }
  recording.finish();
}

void VulkanBackend::elementwise(const ElementwiseJob &job, gsc_stream stream) {
  const Plan &dst = *job.dst;
  if (dst.chunk_count() == 0) return;
  ElementwiseArgs a{};
  a.same = job.op == Elementwise::kFill || job.src == job.dst;
  const int64_t source_bytes = a.same ? 0 : table_bytes(*job.src);
  Recording recording(recorder_, stream, job.op == Elementwise::kFill ? "filling" : "the operation");
  const uint64_t scratch = recording.scratch(table_bytes(dst) + source_bytes);
  const PlanOnDevice to(dst, scratch + static_cast<uint64_t>(source_bytes));
  a.dst = to.view();
  a.src = a.dst.tensors;
  a.factor = job.factor;
  a.a = job.a;
  a.b = job.b;
  a.op = job.op;
  if (a.same) {
    recording.add(Kernel::kElementwise, dst.chunk_count() << a.dst.split, kPartThreads, a);
  } else {
    const PlanOnDevice from(*job.src, scratch);
    a.src = from.view().tensors;
    recording.add(Kernel::kElementwise, dst.chunk_count() << a.dst.split, kPartThreads, a);
    from.record(recording);
  }
  to.record(recording);
  recording.run();
  recording.finish();
}

void VulkanBackend::convert(const StateConversion &job, gsc_stream stream) {
  if (job.count == 0) return;
  constexpr int32_t kThreads = 128;
  Recording recording(recorder_, stream, "the conversion");
  recording.add(Kernel::kConversion, (job.count + kThreads - 1) / kThreads, kThreads, job);
  recording.run();
  recording.finish();
}

void VulkanBackend::norm(const NormJob &job, gsc_stream stream) {
  const Plan &plan = *job.plan;
  Recording recording(recorder_, stream, "the norm");
  const PlanOnDevice on_device(plan, recording.scratch(table_bytes(plan)));
  CheckArgs a{};
  a.plan = on_device.view();
  a.last_chunk = plan.chunk_count();
  a.results = on_device.results();
  a.fp64_limit = kFp64Limit;
  a.amax_keeps_nonfinite = true;
  recording.add(Kernel::kCheck, a.last_chunk, kChunkThreads, a, static_cast<int32_t>(CheckSpecial::kRead));
  recording.add(Kernel::kNorm, job.out_tensor_norms != nullptr ? plan.size() + 1 : 1, 256,
                NormArgs{a.plan, a.results, nullptr, job.out_norm, job.out_tensor_norms, job.amax});
  on_device.record(recording);
  recording.run();
  recording.finish();
}

void VulkanBackend::diagnose_sync(const DiagnoseJob &job, gsc_stream stream) {
  const char *what = "diagnose";
  require_no_commands(stream, what);
  const Plan &plan = *job.plan;
  const int64_t bins = job.histogram != nullptr ? plan.size() * GSC_EXPONENT_BINS : 0;
  const int64_t chunk_bytes = plan.chunk_count() * int64_t{sizeof(ChunkDiagnosis)};
  const int64_t bin_bytes = bins * int64_t{sizeof(int64_t)};
  std::pmr::vector<ChunkDiagnosis> chunks(static_cast<std::size_t>(plan.chunk_count()), memory_);
  std::pmr::vector<int64_t> counts(static_cast<std::size_t>(bins), 0, memory_);
  if (plan.chunk_count() > 0) {
    const int64_t bytes = chunk_bytes + bin_bytes;
    void *const out = allocate(bytes);
    try {
      DiagnoseArgs a{};
      a.out = static_cast<ChunkDiagnosis *>(out);
      if (bins > 0) a.histogram = reinterpret_cast<int64_t *>(static_cast<char *>(out) + chunk_bytes);
      {
        Recording recording(recorder_, nullptr, what);
        const PlanOnDevice on_device(plan, recording.scratch(table_bytes(plan)));
        a.plan = on_device.view();
        recording.add(Kernel::kDiagnose, plan.chunk_count(), kChunkThreads, a);
        on_device.record(recording);
        recording.run();
        recording.finish();
      }
      read_sync(chunks.data(), out, chunk_bytes, nullptr);
      if (bins > 0) read_sync(counts.data(), a.histogram, bin_bytes, nullptr);
    } catch (...) {
      release(out, bytes);
      throw;
    }
    release(out, bytes);
  }
  std::copy(counts.begin(), counts.end(), job.histogram);
  for (int64_t t = 0; t < plan.size(); ++t) job.out[t] = join_diagnoses(plan, t, chunks);
}

}  // namespace gsc::vulkan
