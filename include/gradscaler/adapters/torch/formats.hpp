// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_ADAPTERS_TORCH_FORMATS_HPP
#define GRADSCALER_ADAPTERS_TORCH_FORMATS_HPP
//
// Optimizer state in fp32, 16 or 8 bits as tensors of libtorch: which dtype a slot has, conversion from one to another,
// and what archives hold beside the tensors of libtorch's classes. Codes that libtorch has no dtype for are integers, in
// the parameter's order of memory. Include <gradscaler/adapters/torch.hpp>.
//
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gradscaler/adapters/torch/tensors.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
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

/// A state slot of a parameter. Codes have scales, one for each 32 elements in the order of memory.
struct Slot {
  at::Tensor values;
  at::Tensor scales;
  DType dtype = DType::fp32;
  bool is_same(const Slot &other) const {
    return values.is_same(other.values) && scales.is_same(other.scales) && dtype == other.dtype;
  }
};

constexpr int64_t kScaleBlock = 32;

inline bool is_square_code(DType dtype) { return dtype == DType::uint8_log || dtype == DType::ufp16_e6m10; }
inline bool has_scales(DType dtype) { return dtype == DType::fp8_e4m3 || is_square_code(dtype); }
/// Of a dtype that has scales.
inline DType scale_dtype(DType dtype) { return dtype == DType::uint8_log ? DType::int16 : DType::fp8_e8m0; }

/// What holds the elements of a dtype.
inline at::ScalarType stored_type(DType dtype) {
  switch (dtype) {
    case DType::fp8_e4m3:
    case DType::uint8_log:
    case DType::fp8_e8m0:
      return at::kByte;
    case DType::ufp16_e6m10:
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
  /// Of StateFormat::full, bits16 and bits8; the last of bits8 with means that move fast and squares without a maximum,
  /// without a remainder: so these are in codes of 8 bits.
  std::vector<DType> dtypes[4];
  static constexpr const char *kRemainder = "remainder";
};

/// Asks the library, once for each combination. In 8 bits it decides by how fast means of gradients move and by AMSGrad.
inline const SlotLayout &slot_layout(OptimizerOptions options, DType param) {
  using Number = std::optional<double>;
  static std::mutex mutex;
  static std::map<std::tuple<OptimizerKind, uint32_t, Number, Number, Number, Number, MasterFormat, DType>, SlotLayout>
      known;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] =
      known.try_emplace({options.kind, options.flags, options.beta1, options.beta2, options.momentum, options.alpha,
                         options.master_format.value_or(MasterFormat::none), param});
  SlotLayout &layout = found->second;
  if (!is_new) return layout;
  const Context cpu{ContextOptions{.num_threads = 1}};
  double numbers[2] = {};
  const TensorList params(cpu, {gradscaler::tensor(&numbers[0], 1, param)});
  const TensorList grads(cpu, {gradscaler::tensor(&numbers[1], 1, param)});
  const int formats = param == DType::fp64 ? 1 : 4;
  for (int format = 0; format < formats; ++format) {
    options.state_format = static_cast<StateFormat>(std::min(format, static_cast<int>(StateFormat::bits8)));
    const bool is_last = format > static_cast<int>(StateFormat::bits8);
    if (is_last) {
      options.flags &= ~static_cast<uint32_t>(GSC_OPTIMIZER_AMSGRAD);
      options.master_format = MasterFormat::none;
      if (options.beta1) options.beta1 = 0.5;
      if (options.momentum.value_or(0.0) > 0.0) options.momentum = 0.5;
    }
    const Optimizer optimizer(cpu, options, params, grads);
    for (int32_t slot = 0; slot < optimizer.get_state_count(); ++slot) {
      const Optimizer::StateSlot state = optimizer.get_state(slot);
      if (format == 0) layout.names.emplace_back(state.name);
      layout.dtypes[format].push_back(static_cast<DType>(state.list.get_tensor(0).dtype));
    }
  }
  return layout;
}

inline Tensor buffer_of(const Slot &slot) {
  const int64_t count = slot.values.numel();
  Tensor buffer = gradscaler::tensor(count == 0 ? nullptr : slot.values.mutable_data_ptr(), count, slot.dtype);
  if (has_scales(slot.dtype)) {
    buffer.scale_dtype = static_cast<int32_t>(scale_dtype(slot.dtype));
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
    slot.scales =
        at::zeros({(param.numel() + kScaleBlock - 1) / kScaleBlock}, options.dtype(stored_type(scale_dtype(dtype))));
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
/// the slot has in the formats of the layout. `is_earlier`: codes are those of an earlier version.
inline Slot held_slot(const at::Tensor &values, const at::Tensor &scales, const SlotLayout &layout, std::size_t slot,
                      const Place &place, bool is_earlier) {
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
  if (!has_scales(held.dtype)) {
    held.scales = at::Tensor();
    return held;
  }
  const int64_t blocks = (values.numel() + kScaleBlock - 1) / kScaleBlock;
  const at::ScalarType wanted = stored_type(scale_dtype(held.dtype));
  if (is_earlier && is_square_code(held.dtype)) {
    bad_state(place.str() + " has " + layout.names[slot] +
              " in codes of an earlier version, which this one does not read; load it there with StateFormat::full, and"
              " save that");
  }
  if (!scales.defined() || scales.scalar_type() != wanted || scales.numel() != blocks || !scales.is_contiguous()) {
    bad_state(place.str() + " has " + layout.names[slot] + " in codes, but not " + std::to_string(blocks) +
              " scales of " + c10::toString(wanted));
  }
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
  /// Of an archive. Codes of squares were other ones in an earlier version, which may have the same dtypes.
  bool has_earlier_codes = false;

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
    c10::IValue codes;
    has_earlier_codes = !archive.try_read(kCodesKey, codes) || codes.toInt() != kCodesOfNow;
    if constexpr (!kCounts) {
      c10::IValue value;
      if (archive.try_read("step", value)) steps = value.toInt();
    }
  }
  void serialize(::torch::serialize::OutputArchive &archive) const override {
    Base::serialize(archive);
    bool has_codes = false;
    for (const auto &[name, tensor] : added) {
      if (!tensor.defined()) continue;
      archive.write(name, c10::IValue(tensor));
      has_codes = has_codes || name != SlotLayout::kRemainder;
    }
    if (has_codes) archive.write(kCodesKey, c10::IValue(has_earlier_codes ? 0 : kCodesOfNow));
    if constexpr (!kCounts) archive.write("step", c10::IValue(steps));
  }

 private:
  static constexpr const char *kCodesKey = "codes";
  static constexpr int64_t kCodesOfNow = 2;
  static constexpr bool kCounts = requires(const Base &state) { state.step(); };
};

}  // namespace detail

}  // namespace gradscaler::torch

#endif  // GRADSCALER_ADAPTERS_TORCH_FORMATS_HPP
