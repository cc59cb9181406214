// SPDX-License-Identifier: Apache-2.0
// Plans in device memory: the mirrors of lists, built with the list, and the tables that a stateless operation sends
// along.
#include "core/cuda/plan_on_device.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "core/cuda/teams.h"

namespace gsc::cuda {
namespace {

int64_t round_up(int64_t bytes) { return (bytes + 63) & ~int64_t{63}; }

template <typename T>
T *at(void *memory, int64_t offset) {
  return reinterpret_cast<T *>(static_cast<char *>(memory) + offset);
}

}  // namespace

TableLayout::TableLayout(const Plan &plan, bool with_partials) {
  one_each = plan.chunk_count() == plan.size();
  for (int64_t i = 0; one_each && i < plan.size(); ++i) one_each = plan.first_chunk(i) == i;
  tensor_of = round_up(plan.size() * int64_t{sizeof(DeviceTensor)});
  partials = tensor_of + (one_each ? 0 : round_up(plan.chunk_count() * int64_t{sizeof(int32_t)}));
  counters = partials + (with_partials ? round_up(plan.chunk_count() * int64_t{sizeof(ChunkPartial)}) : 0);
  staged = counters + round_up(2 * sizeof(CheckCounters));
  const bool stages = with_partials && plan.size() > PointerBatch::kCount;
  bytes = staged + (stages ? round_up(plan.size() * int64_t{sizeof(void *)}) : 0);
}

DeviceTensor device_tensor(const Plan &plan, int64_t i) {
  const Tensor &t = plan.tensor(i);
  return {t.data, t.count, plan.first_chunk(i), t.dtype, 0};
}

int32_t shift_of(const Plan &plan) { return std::countr_zero(static_cast<uint64_t>(plan.chunk_elements())); }

Scratch::Scratch(CudaBackend &backend, int64_t bytes, cudaStream_t stream) : backend_(backend), stream_(stream) {
  if (bytes == 0) return;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  GSC_CUDA_CALL("allocating scratch memory", cudaStreamIsCapturing, stream, &status);
  kept_ = status != cudaStreamCaptureStatusNone;
  data_ =
      kept_ ? backend.keep_for_graph(bytes) : backend.obtain(bytes, CudaBackend::kForScratch, backend.pool_, stream);
}

Scratch::~Scratch() {
  if (data_ == nullptr || kept_) return;
  if (backend_.pool_ != nullptr) {
    if (cudaFreeAsync(data_, stream_) != cudaSuccess) (void)cudaGetLastError();
    return;
  }
  const RelaxedCapture relaxed;
  // cudaFree waits too, but does not guarantee it.
  (void)cudaStreamSynchronize(stream_);
  (void)cudaFree(data_);
  (void)cudaGetLastError();
}

int32_t CudaBackend::check_warps(const Plan &plan, Vec<int64_t> &shares) const {
  const int64_t bytes = plan.size() > 0 ? dtype_bytes(plan.tensor(0).dtype) : 1;
  return choose_cut(plan, {check_slots_, bytes_per_us_, static_cast<double>(bytes), false}, shares).warps;
}

Cut CudaBackend::step_cut(const Plan &plan, Vec<int64_t> &shares) const {
  constexpr int64_t kBlocks = 4;   // resident per multiprocessor, of steps in fp32 and of element-wise operations
  constexpr double kBytes = 28.0;  // of AdamW with 16-bit gradients and a model copy
  return choose_cut(plan, {units_ * kBlocks, bytes_per_us_, kBytes, true}, shares);
}

int64_t PlanOnDevice::scratch_bytes(const Plan &plan, Use use) {
  return plan.mirror() != nullptr ? 0 : TableLayout(plan, use == Use::kNorm).bytes;
}

PlanOnDevice::PlanOnDevice(CudaBackend &backend, const Plan &plan, Use use, cudaStream_t stream)
    : scratch_(backend, scratch_bytes(plan, use), stream) {
  if (const Mirror *mirror = mirror_of(plan)) {
    view_ = mirror->view;
    if (use != Use::kElementwise) view_.warps_per_chunk = mirror->check_warps;
    partials_ = mirror->partials;
    return;
  }
  const TableLayout layout(plan, use == Use::kNorm);
  auto *tensors = at<DeviceTensor>(scratch_.data(), 0);
  auto *tensor_of = layout.one_each ? nullptr : at<int32_t>(scratch_.data(), layout.tensor_of);
  Vec<int64_t> &shares = plan.backend_memory();
  Cut cut = {1, 0};
  if (use == Use::kElementwise) {
    cut = backend.step_cut(plan, shares);
  } else if (use != Use::kDiagnose) {
    cut.warps = backend.check_warps(plan, shares);
  }
  view_ = {tensors, tensor_of, plan.size(), plan.chunk_count(), shift_of(plan), cut.warps, cut.split};
  if (use == Use::kNorm) partials_ = at<ChunkPartial>(scratch_.data(), layout.partials);
  for (int64_t first = 0; first < plan.size(); first += TensorBatch::kCount) {
    TensorBatch batch{};
    const auto count = static_cast<int>(std::min<int64_t>(plan.size() - first, TensorBatch::kCount));
    for (int i = 0; i < count; ++i) batch.tensors[i] = device_tensor(plan, first + i);
    check_launch(launch_write_tensors(tensors, tensor_of, batch, first, count, plan.first_chunk(first + count), stream),
                 "sending the tensors");
  }
}

void CudaBackend::bind(Plan &plan) {
  const TableLayout layout(plan, true);
  std::pmr::vector<DeviceTensor> tensors(memory_);
  std::pmr::vector<int32_t> tensor_of(layout.one_each ? 0 : plan.chunk_count(), 0, memory_);
  tensors.reserve(plan.size());
  Vec<int64_t> shares(memory_);
  Mirror m{};
  for (int64_t i = 0; i < plan.size(); ++i) {
    tensors.push_back(device_tensor(plan, i));
    if (!layout.one_each) {
      std::fill(tensor_of.begin() + plan.first_chunk(i), tensor_of.begin() + plan.first_chunk(i + 1),
                static_cast<int32_t>(i));
    }
    (is_wide(plan.tensor(i).dtype) ? m.has_fp64 : m.has_others) = true;
  }
  void *host = memory_->allocate(sizeof(Mirror), alignof(Mirror));
  try {
    m.memory = allocate(layout.bytes);
    m.tensors = at<DeviceTensor>(m.memory, 0);
    m.partials = at<ChunkPartial>(m.memory, layout.partials);
    m.counters = at<CheckCounters>(m.memory, layout.counters);
    m.staged = at<const void *>(m.memory, layout.staged);
    auto *device_tensor_of = layout.one_each ? nullptr : at<int32_t>(m.memory, layout.tensor_of);
    const Cut cut = step_cut(plan, shares);
    m.view = {m.tensors, device_tensor_of, plan.size(), plan.chunk_count(), shift_of(plan), cut.warps, cut.split};
    m.check_warps = check_warps(plan, shares);
    const DeviceGuard guard(context_);
    const RelaxedCapture relaxed;
    const char *what = "uploading the list";
    GSC_CUDA_CALL(what, cudaMemcpyAsync, m.tensors, tensors.data(), tensors.size() * sizeof(DeviceTensor),
                  cudaMemcpyHostToDevice, setup_stream_);
    if (!layout.one_each) {
      GSC_CUDA_CALL(what, cudaMemcpyAsync, device_tensor_of, tensor_of.data(), tensor_of.size() * sizeof(int32_t),
                    cudaMemcpyHostToDevice, setup_stream_);
    }
    GSC_CUDA_CALL(what, cudaStreamSynchronize, setup_stream_);
  } catch (...) {
    if (m.memory != nullptr) release(m.memory, layout.bytes);
    memory_->deallocate(host, sizeof(Mirror), alignof(Mirror));
    throw;
  }
  plan.set_mirror(new (host) Mirror(m));
}

void CudaBackend::rebind(const Plan &plan, void *const *data, gsc_stream stream) {
  const DeviceGuard guard(context_);
  const char *what = "pointing the list at new buffers";
  const Mirror &mirror = *mirror_of(plan);
  // Only the last launch changes the table, so that a failure between them leaves all of it as it was.
  for (int64_t first = 0; first < plan.size(); first += PointerBatch::kCount) {
    PointerBatch batch{};
    const auto count = static_cast<int>(std::min<int64_t>(plan.size() - first, PointerBatch::kCount));
    std::copy_n(data + first, count, batch.pointers);
    if (first + count < plan.size()) {
      check_launch(launch_stage_pointers(mirror.staged + first, batch, count, to_stream(stream)), what);
    } else {
      check_launch(launch_write_pointers(mirror.tensors, mirror.staged, first, batch, count, to_stream(stream)), what);
    }
  }
}

void CudaBackend::unbind(Plan &plan) noexcept {
  auto *mirror = static_cast<Mirror *>(plan.mirror());
  if (mirror == nullptr) return;
  release(mirror->memory, TableLayout(plan, true).bytes);
  memory_->deallocate(mirror, sizeof(Mirror), alignof(Mirror));
  plan.set_mirror(nullptr);
}

}  // namespace gsc::cuda
