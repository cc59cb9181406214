// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_ADAPTERS_TORCH_FORMATS_HPP
#define GRADSCALER_ADAPTERS_TORCH_FORMATS_HPP
//
// Optimizer state in fp32, 16 or 8 bits as tensors of libtorch: which dtype a slot has, conversion from one to another,
// and what archives hold beside the tensors of libtorch's classes. Codes that libtorch has no dtype for are integers, in
// the parameter's order of memory. Include <gradscaler/adapters/torch.hpp>.
//
#include <cstddef>
#include <cstdint>
#include <gradscaler/adapters/torch/tensors.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace gradscaler::torch {

/// How an optimizer keeps the state of its parameters, as torch::optim's options are set:
/// StateOptions().state_format(StateFormat::bits8).master_format(MasterFormat::split16). See docs/state.md.
struct StateOptions {
  /// fp64 parameters have StateFormat::full only.
  TORCH_ARG(StateFormat, state_format) = StateFormat::full;
  /// What an fp16 or bf16 parameter has of an fp32 master; other parameters have MasterFormat::none only.
  TORCH_ARG(MasterFormat, master_format) = MasterFormat::none;
  /// Of stochastic rounding.
  TORCH_ARG(int64_t, seed) = 0;
};

namespace detail {

/// A state slot of a parameter. Codes have scales, one byte for each 32 elements in the order of memory.
struct Slot {
  at::Tensor values;
  at::Tensor scales;
  DType dtype = DType::fp32;
  bool is_same(const Slot &other) const {
    return values.is_same(other.values) && scales.is_same(other.scales) && dtype == other.dtype;
  }
};

constexpr int64_t kScaleBlock = 32;

inline bool has_scales(DType dtype) {
  return dtype == DType::fp8_e4m3 || dtype == DType::ufp8_e4m4 || dtype == DType::ufp16_e5m11;
}

/// What holds the elements of a dtype.
inline at::ScalarType stored_type(DType dtype) {
  switch (dtype) {
    case DType::fp8_e4m3:
    case DType::ufp8_e4m4:
      return at::kByte;
    case DType::ufp16_e5m11:
    case DType::int16:
      return at::kShort;
    case DType::int8:
      return at::kChar;
    case DType::bf16:
      return at::kBFloat16;
    case DType::fp64:
      return at::kDouble;
    default:
      return at::kFloat;
  }
}

/// The slots that an optimizer has for parameters of one dtype: names, and dtypes in each format of state.
struct SlotLayout {
  std::vector<std::string> names;
  /// Of StateFormat::full, bits16 and bits8.
  std::vector<DType> dtypes[3];
  static constexpr const char *kRemainder = "remainder";
};

/// Asks the library, once for each combination.
inline const SlotLayout &slot_layout(OptimizerOptions options, DType param) {
  static std::mutex mutex;
  static std::map<std::tuple<OptimizerKind, uint32_t, bool, MasterFormat, DType>, SlotLayout> known;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace({options.kind, options.flags, options.momentum.value_or(0.0) > 0.0,
                                                  options.master_format.value_or(MasterFormat::none), param});
  SlotLayout &layout = found->second;
  if (!is_new) return layout;
  const Context cpu{ContextOptions{.num_threads = 1}};
  double numbers[2] = {};
  const TensorList params(cpu, {gradscaler::tensor(&numbers[0], 1, param)});
  const TensorList grads(cpu, {gradscaler::tensor(&numbers[1], 1, param)});
  const int formats = param == DType::fp64 ? 1 : 3;
  for (int format = 0; format < formats; ++format) {
    options.state_format = static_cast<StateFormat>(format);
    const Optimizer optimizer(cpu, options, params, grads);
    layout.names.clear();
    for (int32_t slot = 0; slot < optimizer.get_state_count(); ++slot) {
      const Optimizer::StateSlot state = optimizer.get_state(slot);
      layout.names.emplace_back(state.name);
      layout.dtypes[format].push_back(static_cast<DType>(state.list.get_tensor(0).dtype));
    }
  }
  return layout;
}

inline Tensor buffer_of(const Slot &slot) {
  const int64_t count = slot.values.numel();
  Tensor buffer = gradscaler::tensor(count == 0 ? nullptr : slot.values.mutable_data_ptr(), count, slot.dtype);
  if (has_scales(slot.dtype)) {
    buffer.scale_dtype = GSC_FP8_E8M0;
    buffer.scale = count == 0 ? nullptr : slot.scales.const_data_ptr();
    buffer.scale_block_rows = 1;
    buffer.scale_block_columns = kScaleBlock;
  }
  return buffer;
}

/// A slot of zeros in a parameter's order of memory.
inline Slot zeros(const at::Tensor &param, DType dtype) {
  const at::TensorOptions options = param.options().requires_grad(false);
  Slot slot{at::zeros_like(param.detach(), options.dtype(stored_type(dtype))), {}, dtype};
  if (has_scales(dtype)) {
    slot.scales = at::zeros({(param.numel() + kScaleBlock - 1) / kScaleBlock}, options.dtype(at::kByte));
  }
  return slot;
}

/// Both in one order of memory, on one device.
inline void convert(const Slot &from, const Slot &to) {
  const at::Device device = resolve(to.values.device());
  const Tensor source = buffer_of(from), target = buffer_of(to);
  ops::convert_state(context_of(device), source, {}, target, current_stream(device));
}

/// What a slot of a parameter holds, whose tensors may come from an archive: codes are told by their dtype and by what
/// the slot has in the formats of the layout.
inline Slot held_slot(const at::Tensor &values, const at::Tensor &scales, const SlotLayout &layout, std::size_t slot,
                      const Place &place) {
  if (!values.defined()) return {};
  Slot held{values, scales, DType::fp32};
  if (layout.names[slot] == SlotLayout::kRemainder) {
    held.dtype = values.scalar_type() == at::kChar ? DType::int8 : DType::int16;
  } else {
    for (const auto &dtypes : layout.dtypes) {
      if (slot < dtypes.size() && values.scalar_type() == stored_type(dtypes[slot])) held.dtype = dtypes[slot];
    }
  }
  if (held.dtype == DType::fp32 && at::isIntegralType(values.scalar_type(), /*includeBool=*/true)) {
    bad_state(place.str() + " is " + c10::toString(values.scalar_type()) + ", in which no format has it");
  }
  const int64_t blocks = (values.numel() + kScaleBlock - 1) / kScaleBlock;
  if (has_scales(held.dtype) &&
      (!scales.defined() || scales.scalar_type() != at::kByte || scales.numel() != blocks || !scales.is_contiguous())) {
    bad_state(place.str() + " has codes, but not " + std::to_string(blocks) + " bytes of scales");
  }
  if (!has_scales(held.dtype)) held.scales = at::Tensor();
  return held;
}

/// `held` as state of `param`: other tensors if it is not there, of another dtype or device, or not laid out like it.
inline Slot slot_for(Slot held, const at::Tensor &param, DType dtype, double first_value) {
  const auto is_there = [&](DType wanted) {
    return held.dtype == wanted && held.values.scalar_type() == stored_type(wanted) &&
           held.values.device() == param.device() && same_layout(held.values, param);
  };
  if (held.values.defined() && is_there(dtype)) return held;
  Slot made = zeros(param, dtype);
  if (!held.values.defined()) {
    if (first_value == 0.0) return made;
    held = zeros(param, dtype == DType::fp64 ? dtype : DType::fp32);
    held.values.fill_(first_value);
  } else {
    held.values = held.values.to(param.device());
    if (held.scales.defined()) held.scales = held.scales.to(param.device());
    const bool is_remainder = held.dtype == DType::int16 || held.dtype == DType::int8;
    if (has_scales(held.dtype)) {
      const Slot full = zeros(held.values, DType::fp32);
      convert(held, full);
      held = full;
    }
    // As fp32 or fp64, or as it is, in the parameter's order.
    Slot ordered = zeros(param, is_remainder ? held.dtype : dtype == DType::fp64 ? dtype : DType::fp32);
    ordered.values.copy_(held.values);
    held = std::move(ordered);
  }
  if (held.dtype == dtype) return held;
  convert(held, made);
  return made;
}

/// State of a parameter: what libtorch's class has, and what formats add to it: scales, remainders, and the steps where
/// libtorch does not count them, by which stochastic rounding goes.
template <class Base>
struct FormatState : Base {
  FormatState() = default;
  explicit FormatState(const Base &state) : Base(state) {}
  FormatState(const FormatState &) = default;

  /// By the name of the slot and "_scale", or "remainder". May have undefined ones.
  std::map<std::string, at::Tensor> added;
  int64_t steps = 0;

  std::unique_ptr<::torch::optim::OptimizerParamState> clone() const override {
    return std::make_unique<FormatState>(*this);
  }
  void serialize(::torch::serialize::InputArchive &archive) override {
    Base::serialize(archive);
    for (const std::string &key : archive.keys()) {
      if (key != SlotLayout::kRemainder && !key.ends_with("_scale")) continue;
      c10::IValue value;
      archive.read(key, value);
      added[key] = value.toTensor();
    }
    if constexpr (!kCounts) {
      c10::IValue value;
      if (archive.try_read("step", value)) steps = value.toInt();
    }
  }
  void serialize(::torch::serialize::OutputArchive &archive) const override {
    Base::serialize(archive);
    for (const auto &[name, tensor] : added) {
      if (tensor.defined()) archive.write(name, c10::IValue(tensor));
    }
    if constexpr (!kCounts) archive.write("step", c10::IValue(steps));
  }

 private:
  static constexpr bool kCounts = requires(const Base &state) { state.step(); };
};

}  // namespace detail

}  // namespace gradscaler::torch

#endif  // GRADSCALER_ADAPTERS_TORCH_FORMATS_HPP
