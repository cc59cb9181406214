// SPDX-License-Identifier: Apache-2.0
// Device memory for one call: scratch memory, and a plan's tables in it.
#pragma once

#include "core/cuda/backend.h"

namespace gsc::cuda {

/// Stream-ordered memory, freed in stream order with the object. A captured call gets memory that the backend keeps, as
/// bodies of conditional nodes take no memory nodes. On a device without memory pools it is allocated synchronously, and
/// freed once the stream has reached that point.
class Scratch {
 public:
  Scratch(CudaBackend &backend, int64_t bytes, cudaStream_t stream);
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  ~Scratch();
  void *data() const { return data_; }

 private:
  CudaBackend &backend_;
  cudaStream_t stream_;
  void *data_ = nullptr;
  bool kept_ = false;  ///< by the backend
};

/// A plan as kernels see it: its mirror, or tables sent along for this call.
class PlanOnDevice {
 public:
  enum class Use { kElementwise, kCheck, kNorm, kDiagnose };  ///< kNorm: a check with partials; kDiagnose: no teams
  PlanOnDevice(CudaBackend &backend, const Plan &plan, Use use, cudaStream_t stream);
  const PlanView &view() const { return view_; }
  ChunkPartial *partials() const { return partials_; }

 private:
  static int64_t scratch_bytes(const Plan &plan, Use use);

  Scratch scratch_;
  PlanView view_{};
  ChunkPartial *partials_ = nullptr;
};

/// The layout of a plan's tables in one allocation.
struct TableLayout {
  TableLayout(const Plan &plan, bool with_partials);
  bool one_each;      ///< every tensor has one chunk: no table tells the tensor of each
  int64_t tensor_of;  ///< offset
  int64_t partials;
  int64_t counters;
  int64_t staged;
  int64_t bytes;
};

/// The entry of tensor `i`.
DeviceTensor device_tensor(const Plan &plan, int64_t i);
int32_t shift_of(const Plan &plan);

inline const Mirror *mirror_of(const Plan &plan) { return static_cast<const Mirror *>(plan.mirror()); }

}  // namespace gsc::cuda
