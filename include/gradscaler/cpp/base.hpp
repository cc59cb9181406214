// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_CPP_BASE_HPP
#define GRADSCALER_CPP_BASE_HPP
//
// What every part of gradscaler.hpp stands on: the exception, the enumerations of the C header as types, and the
// owner of one C object. The objects themselves are in the files beside this one.
//
#include <gradscaler/gradscaler.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace gradscaler {

/// What every failing call throws: the library's message, and the status behind it.
class Error : public std::runtime_error {
 public:
  Error(gsc_status status, const std::string &message) : std::runtime_error(message), status_(status) {}
  /// GSC_ERROR_*.
  gsc_status status() const noexcept { return status_; }

 private:
  gsc_status status_;
};

enum class DType : int32_t { fp16 = GSC_FP16, bf16 = GSC_BF16, fp32 = GSC_FP32, fp64 = GSC_FP64 };
enum class DeviceType : int32_t { cpu = GSC_DEVICE_CPU, cuda = GSC_DEVICE_CUDA };
enum class CpuTarget : int32_t {
  best = GSC_CPU_BEST,
  baseline = GSC_CPU_BASELINE,
  avx2 = GSC_CPU_AVX2,
  avx512 = GSC_CPU_AVX512
};
enum class Norm : int32_t { l2 = GSC_NORM_L2, inf = GSC_NORM_INF };
enum class HysteresisRefill : int32_t {
  on_growth = GSC_REFILL_ON_GROWTH,
  on_clean_step = GSC_REFILL_ON_CLEAN_STEP,
  consecutive = GSC_REFILL_CONSECUTIVE
};
enum class GrowthTiming : int32_t {
  at_interval = GSC_GROWTH_AT_INTERVAL,
  one_later = GSC_GROWTH_ONE_LATER,
  first_one_later = GSC_GROWTH_FIRST_ONE_LATER
};
enum class FloorAction : int32_t { clamp = GSC_FLOOR_CLAMP, report = GSC_FLOOR_REPORT, error = GSC_FLOOR_ERROR };
enum class Preset : int32_t {
  torch = GSC_PRESET_TORCH,
  apex = GSC_PRESET_APEX,
  apex_hysteresis = GSC_PRESET_APEX_HYSTERESIS,
  megatron = GSC_PRESET_MEGATRON,
  deepspeed = GSC_PRESET_DEEPSPEED,
  tensorflow = GSC_PRESET_TENSORFLOW,
  keras = GSC_PRESET_KERAS,
  flax = GSC_PRESET_FLAX,
  jmp = GSC_PRESET_JMP,
  paddle = GSC_PRESET_PADDLE,
  mindspore = GSC_PRESET_MINDSPORE,
  fairseq = GSC_PRESET_FAIRSEQ,
  oneflow = GSC_PRESET_ONEFLOW,
  colossalai = GSC_PRESET_COLOSSALAI
};
enum class OptimizerKind : int32_t {
  sgd = GSC_SGD,
  adam = GSC_ADAM,
  adamw = GSC_ADAMW,
  adagrad = GSC_ADAGRAD,
  lion = GSC_LION,
  lamb = GSC_LAMB
};

namespace detail {

inline void check(gsc_status status) {
  if (status != GSC_OK) throw Error(status, gsc_error_get_message());
}

[[noreturn]] inline void bad_argument(const std::string &message) { throw Error(GSC_ERROR_INVALID_ARGUMENT, message); }

struct Destroy {
  void operator()(gsc_context *object) const noexcept { gsc_context_destroy(object); }
  void operator()(gsc_tensor_list *object) const noexcept { gsc_tensor_list_destroy(object); }
  void operator()(gsc_scaler *object) const noexcept { gsc_scaler_destroy(object); }
  void operator()(gsc_optimizer *object) const noexcept { gsc_optimizer_destroy(object); }
};

/// Owns one object of the C ABI.
template <typename Object>
class Handle {
 public:
  /// The object, still owned by this.
  Object *get() const noexcept { return object_.get(); }
  /// Gives the object to the caller, who destroys it.
  [[nodiscard]] Object *release() noexcept { return object_.release(); }
  /// False after release or a move.
  explicit operator bool() const noexcept { return object_ != nullptr; }

 protected:
  Handle() = default;
  explicit Handle(Object *object) noexcept : object_(object) {}
  void take(Object *object) noexcept { object_.reset(object); }

 private:
  std::unique_ptr<Object, Destroy> object_;
};

/// Tells the constructor that takes over an object from those that make one.
struct Adopt {};

}  // namespace detail

}  // namespace gradscaler

#endif  // GRADSCALER_CPP_BASE_HPP
