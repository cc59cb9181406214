// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_ADAPTERS_TORCH_TENSORS_HPP
#define GRADSCALER_ADAPTERS_TORCH_TENSORS_HPP
//
// Tensors of libtorch as buffers of this library: devices, streams, dtypes, and what is refused. Include
// <gradscaler/adapters/torch.hpp>.
//
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <gradscaler/gradscaler.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace gradscaler::torch::detail {

using gradscaler::detail::bad_argument;

[[noreturn]] inline void bad_state(const std::string &message) { throw Error(GSC_ERROR_BAD_STATE, message); }

/// The CPU, or a CUDA device by number: without one the current device.
inline at::Device resolve(at::Device device) {
  if (device.is_cpu()) return at::kCPU;
  if (!device.is_cuda()) bad_argument("device is " + device.str() + "; it must be cpu or cuda");
  return device.has_index() ? device : c10::impl::VirtualGuardImpl(at::kCUDA).getDevice();
}

/// The context of a device, one for the whole process. On the CPU it has as many threads as libtorch at the first call.
inline const Context &context_of(at::Device device) {
  static std::mutex mutex;
  static std::map<int, Context> contexts;
  const int key = device.is_cuda() ? device.index() : -1;
  const std::lock_guard lock(mutex);
  const auto found = contexts.find(key);
  if (found != contexts.end()) return found->second;
  ContextOptions options;
  if (device.is_cuda()) {
    options.device_type = DeviceType::cuda;
    options.device_index = key;
  } else {
    options.num_threads = at::get_num_threads();
  }
  return contexts.emplace(key, Context(options)).first->second;
}

/// libtorch's current stream of a device.
inline gsc_stream current_stream(at::Device device) {
  if (!device.is_cuda()) return nullptr;
  return c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device).native_handle();
}

/// Which tensor a message is about.
struct Place {
  const char *what;
  std::size_t group;
  std::size_t index;
  std::string str() const {
    return std::string(what) + " of parameter " + std::to_string(index) + " in group " + std::to_string(group);
  }
};

/// The elements of a dense tensor, in the order in which they lie in memory.
inline Tensor buffer_of(const at::Tensor &tensor, const Place &place) {
  if (tensor.layout() != at::kStrided) {
    bad_argument(place.str() + c10::str(" has layout ", tensor.layout(), "; only dense tensors can be unscaled and ",
                                        "stepped on: make it dense with to_dense(), or build the embedding with ",
                                        "sparse(false)"));
  }
  DType dtype{};
  switch (tensor.scalar_type()) {
    case at::kHalf:
      dtype = DType::fp16;
      break;
    case at::kBFloat16:
      dtype = DType::bf16;
      break;
    case at::kFloat:
      dtype = DType::fp32;
      break;
    case at::kDouble:
      dtype = DType::fp64;
      break;
    default:
      bad_argument(place.str() + " is of dtype " + c10::toString(tensor.scalar_type()) +
                   "; it must be Half, BFloat16, Float or Double");
  }
  if (tensor.is_neg()) bad_argument(place.str() + " is a lazily negated view; call resolve_neg()");
  if (!tensor.has_storage()) bad_argument(place.str() + " has no storage");
  if (!tensor.is_non_overlapping_and_dense()) {
    bad_argument(place.str() + c10::str(" has sizes ", tensor.sizes(), " and strides ", tensor.strides(),
                                        ", which leave gaps or overlap; call contiguous()"));
  }
  return tensor.numel() == 0 ? gradscaler::tensor(nullptr, 0, dtype)
                             : gradscaler::tensor(tensor.mutable_data_ptr(), tensor.numel(), dtype);
}

/// Whether elements of the same index lie at the same place of both.
inline bool same_layout(const at::Tensor &a, const at::Tensor &b) {
  if (a.sizes() != b.sizes()) return false;
  for (int64_t i = 0; a.numel() != 0 && i < a.dim(); ++i) {
    // The stride of a dimension of one element means nothing.
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

/// Tells tensors apart, also from those that have died: no other tensor gets an address that an Identity still knows. It
/// does not keep the elements in memory.
class Identity {
 public:
  Identity(const at::Tensor &tensor) : impl_(tensor.getIntrusivePtr()) {}
  bool operator==(const Identity &other) const { return impl_ == other.impl_; }
  struct Hash {
    std::size_t operator()(const Identity &identity) const {
      return std::hash<const void *>()(identity.impl_._unsafe_get_target());
    }
  };

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> impl_;
};

/// What was written behind autograd's back, so that a graph that saved the old values refuses to use the new ones.
inline void wrote(const std::vector<at::Tensor> &tensors) {
  for (const at::Tensor &tensor : tensors) tensor.unsafeGetTensorImpl()->bump_version();
}

/// A list that follows tensors which are reallocated: a new plan only when their number, sizes or dtypes change.
class FollowingList {
 public:
  /// Whether the plan is for tensors like these.
  bool fits(const std::vector<Tensor> &buffers) const {
    return list_ &&
           std::equal(buffers.begin(), buffers.end(), buffers_.begin(), buffers_.end(),
                      [](const Tensor &a, const Tensor &b) { return a.count == b.count && a.dtype == b.dtype; });
  }
  /// `stream` is the current one. New addresses are refused while the list is in a scaler's iteration.
  void follow(const Context &context, const std::vector<Tensor> &buffers, gsc_stream stream) {
    const auto same_data = [](const Tensor &a, const Tensor &b) { return a.data == b.data; };
    if (!fits(buffers)) {
      list_ = std::make_unique<TensorList>(context, buffers);
    } else if (!std::equal(buffers.begin(), buffers.end(), buffers_.begin(), same_data)) {
      std::vector<void *> data;
      for (const Tensor &buffer : buffers) data.push_back(buffer.data);
      list_->set_pointers(data, stream);
    }
    buffers_ = buffers;
  }
  TensorListRef list() const { return *list_; }

 private:
  std::unique_ptr<TensorList> list_;
  std::vector<Tensor> buffers_;
};

}  // namespace gradscaler::torch::detail

#endif  // GRADSCALER_ADAPTERS_TORCH_TENSORS_HPP
