// SPDX-License-Identifier: Apache-2.0
//
// XLA FFI handlers over gradscaler.hpp, for the CPU and CUDA: unscale and check, the update of a scale by PyTorch's
// rule, an optimizer step, and the conversion of its state. Outputs alias the operands that they replace, except those
// of a conversion; XLA copies an operand first where it is still needed. Only one context per device is kept between
// calls, so handlers may run concurrently. gradscaler/jax/ defines the operands; the ABI is in xla_ffi.h.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradscaler/gradscaler.hpp"
#include "xla_ffi.h"

namespace {

void require(bool condition, const char *message) {
  if (!condition) throw gradscaler::Error(GSC_ERROR_INVALID_ARGUMENT, message);
}

// A device with all its threads, opened by the first call and kept: a library in use is not unloaded.
const gradscaler::Context &context_of(gradscaler::DeviceType type, int32_t index) {
  static std::mutex mutex;
  static auto &contexts = *new std::map<std::pair<gradscaler::DeviceType, int32_t>, gradscaler::Context>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = contexts.find({type, index});
  if (found != contexts.end()) return found->second;
  return contexts.emplace(std::pair(type, index), gradscaler::Context({.device_type = type, .device_index = index}))
      .first->second;
}

int32_t dtype_of(xla_ffi::DataType type) {
  switch (type) {
    case xla_ffi::kF16:
      return GSC_FP16;
    case xla_ffi::kBF16:
      return GSC_BF16;
    case xla_ffi::kF32:
      return GSC_FP32;
    case xla_ffi::kF64:
      return GSC_FP64;
    default:
      return 0;
  }
}

gsc_tensor tensor_of(const xla_ffi::Buffer &buffer) {
  int64_t count = 1;
  for (int64_t i = 0; i < buffer.rank; ++i) count *= buffer.dims[i];
  return GSC_TENSOR_INIT(buffer.data, count, dtype_of(buffer.dtype));
}

// One call of a handler: its operands and its device.
class Call {
 public:
  Call(const xla_ffi::CallFrame &frame, gradscaler::DeviceType type)
      : frame_(frame),
        on_host_(type == gradscaler::DeviceType::cpu),
        context_(context_of(type, on_host_ ? 0 : place_on_cuda())) {}

  [[nodiscard]] const gradscaler::Context &context() const { return context_; }
  [[nodiscard]] gsc_stream stream() const { return stream_; }
  [[nodiscard]] int64_t arg_count() const { return frame_.args.size; }
  [[nodiscard]] int64_t ret_count() const { return frame_.rets.size; }

  // A scalar in device memory.
  template <typename T>
  [[nodiscard]] T *word(int64_t arg) const {
    const xla_ffi::Buffer &buffer = *frame_.args.buffers[arg];
    require(buffer.dtype == (std::is_same_v<T, float> ? xla_ffi::kF32 : xla_ffi::kS32) && buffer.rank == 0,
            "an operand that must be a single number is not one");
    return static_cast<T *>(buffer.data);
  }

  // The same, aliased by result `ret`.
  template <typename T>
  [[nodiscard]] T *word_in_place(int64_t arg, int64_t ret) const {
    (void)in_place(arg, ret);
    return word<T>(arg);
  }

  [[nodiscard]] gsc_tensor tensor(int64_t arg) const { return tensor_of(*frame_.args.buffers[arg]); }

  [[nodiscard]] gsc_tensor result(int64_t ret) const { return tensor_of(*frame_.rets.buffers[ret]); }

  [[nodiscard]] gsc_tensor in_place(int64_t arg, int64_t ret) const {
    const gsc_tensor to = tensor_of(*frame_.rets.buffers[ret]);
    require(to.count == 0 || to.data == frame_.args.buffers[arg]->data,
            "a result does not share the memory of the operand that it replaces");
    return to;
  }

  // The values of non-negative floats. Waits for the device unless it is the CPU.
  [[nodiscard]] std::vector<double> values(int64_t arg) const;

  template <typename T>
  [[nodiscard]] T attribute(const char *name) const {
    const xla_ffi::Attributes &all = frame_.attributes;
    for (int64_t i = 0; i < all.size; ++i) {
      const xla_ffi::ByteSpan &found = *all.names[i];
      if (std::strlen(name) != found.size || std::memcmp(name, found.data, found.size) != 0) continue;
      const auto &scalar = *static_cast<const xla_ffi::Scalar *>(all.values[i]);
      if (all.types[i] == xla_ffi::kScalarAttribute &&
          scalar.dtype == (std::is_same_v<T, double> ? xla_ffi::kF64 : xla_ffi::kS32)) {
        return *static_cast<const T *>(scalar.value);
      }
    }
    throw gradscaler::Error(GSC_ERROR_INVALID_ARGUMENT,
                            std::string("there is no attribute ") + name + " of the right type");
  }

 private:
  // Gets the stream, and returns the index of the device. Neither call fails for a handler that runs on CUDA.
  int32_t place_on_cuda() {
    const xla_ffi::Api &api = *frame_.api;
    require(api.struct_size >= offsetof(xla_ffi::Api, device_ordinal_get) + sizeof api.device_ordinal_get,
            "this jaxlib is too old for CUDA; 0.6 is needed");
    xla_ffi::StreamGetArgs stream{sizeof stream, nullptr, frame_.context, nullptr};
    xla_ffi::DeviceOrdinalGetArgs device{sizeof device, nullptr, frame_.context, 0};
    require(api.stream_get(&stream) == nullptr && api.device_ordinal_get(&device) == nullptr,
            "XLA does not say on which stream and device it runs");
    stream_ = stream.stream;
    return device.device_ordinal;
  }

  const xla_ffi::CallFrame &frame_;
  gsc_stream stream_ = nullptr;
  bool on_host_;
  const gradscaler::Context &context_;
};

std::vector<double> Call::values(int64_t arg) const {
  const gsc_tensor all = tensor(arg);
  require(all.dtype == GSC_FP32, "an operand that must be numbers in float32 is not");
  auto *first = static_cast<float *>(all.data);
  if (on_host_) return {first, first + all.count};
  // The C ABI's only way to read numbers from any device's memory.
  std::vector<gsc_tensor> each;
  for (int64_t i = 0; i < all.count; ++i) each.push_back(GSC_TENSOR_INIT(first + i, 1, GSC_FP32));
  std::vector<double> values;
  for (const auto &one : gradscaler::TensorList(context_, each).diagnose_sync(false, stream_).tensors) {
    values.push_back(one.amax);
  }
  return values;
}

// The dtype of the scales of optimizer state, one for each 32 elements; 0 if it has none.
int32_t scale_dtype_of(int32_t code) {
  if (code == GSC_UINT8_LOG) return GSC_INT16;
  return code == GSC_FP8_E4M3 || code == GSC_UFP16_E6M10 ? GSC_FP8_E8M0 : 0;
}
bool has_scales(int32_t code) { return scale_dtype_of(code) != 0; }

// `tensor` in a dtype of optimizer state, which XLA has in elements of the same size. `scales` may be nullptr.
gsc_tensor in_code(gsc_tensor tensor, int32_t code, const gsc_tensor *scales) {
  tensor.dtype = code;
  if (!has_scales(code)) return tensor;
  require(scales != nullptr && scales->count >= (tensor.count + 31) / 32, "state has too few scales");
  tensor.scale_dtype = scale_dtype_of(code);
  tensor.scale = tensor.count == 0 ? nullptr : scales->data;
  tensor.scale_block_rows = 1;
  tensor.scale_block_columns = 32;
  return tensor;
}

// inv_scale, found_inf, tensors... -> found_inf, tensors...
void unscale_check(const Call &call) {
  require(call.arg_count() >= 2 && call.ret_count() == call.arg_count() - 1,
          "a result is needed for each operand but the first");
  std::vector<gsc_tensor> tensors;
  for (int64_t i = 2; i < call.arg_count(); ++i) tensors.push_back(call.in_place(i, i - 1));
  gradscaler::ops::unscale_check(call.context(), tensors, call.word_in_place<float>(1, 0), call.word<float>(0),
                                 call.stream());
}

// scale, growth_tracker, found_inf -> scale, growth_tracker
void update_scale(const Call &call) {
  require(call.arg_count() == 3 && call.ret_count() == 2, "three operands and two results are needed");
  gradscaler::ops::update_scale(call.context(), call.word_in_place<float>(0, 0), call.word_in_place<int32_t>(1, 1),
                                call.word<float>(2), call.attribute<double>("growth_factor"),
                                call.attribute<double>("backoff_factor"), call.attribute<int32_t>("growth_interval"),
                                call.stream());
}

// XLA keeps equal gradients in one buffer, but in a list memory may stand once. The parameters in as few parts as that
// takes; each is stepped on for itself. `first` is the operand of the first gradient.
std::vector<std::vector<int64_t>> apart_by_gradient(const Call &call, int64_t first, int64_t count) {
  std::vector<std::vector<int64_t>> parts(1);
  std::map<const void *, size_t> seen;
  for (int64_t i = 0; i < count; ++i) {
    const gsc_tensor grad = call.tensor(first + i);
    const size_t part = grad.count == 0 ? 0 : seen[grad.data]++;
    if (part == parts.size()) parts.emplace_back();
    parts[part].push_back(i);
  }
  return parts;
}

// What a step takes and gives: columns with an array for each parameter. Operands are words, gradients, parameters,
// slot after slot of state, and the scales of those that have any; results are the same from the parameters on.
class Columns {
 public:
  explicit Columns(const Call &call) : call_(call) {
    const int64_t slots = call.attribute<int32_t>("slots");
    for (int64_t slot = 0; slot < slots; ++slot) {
      codes_.push_back(call.attribute<int32_t>(("code" + std::to_string(slot)).c_str()));
      is_coded_ = is_coded_ || codes_.back() != 0;
      if (has_scales(codes_.back())) scaled_.push_back(slot);
    }
    words_ = is_coded_ ? 5 : 4;
    const int64_t written = 1 + slots + static_cast<int64_t>(scaled_.size());
    count_ = call.ret_count() / written;
    require(call.ret_count() == written * count_ && call.arg_count() == words_ + (1 + written) * count_,
            "for each parameter its gradient, its state and a result for all but the gradient are needed");
  }

  [[nodiscard]] int64_t words() const { return words_; }
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] int64_t slots() const { return static_cast<int64_t>(codes_.size()); }
  // Whether state has dtypes that XLA does not know.
  [[nodiscard]] bool is_coded() const { return is_coded_; }

  [[nodiscard]] gsc_tensor grad(int64_t param) const { return call_.tensor(words_ + param); }
  [[nodiscard]] gsc_tensor param(int64_t param) const { return written(0, param); }
  [[nodiscard]] gsc_tensor state(int64_t slot, int64_t param) const {
    const gsc_tensor found = written(1 + slot, param);
    const int32_t code = codes_[static_cast<size_t>(slot)];
    const auto scales = std::find(scaled_.begin(), scaled_.end(), slot);
    if (scales == scaled_.end()) return code == 0 ? found : in_code(found, code, nullptr);
    const gsc_tensor own = written(1 + slots() + (scales - scaled_.begin()), param);
    return in_code(found, code, &own);
  }

 private:
  [[nodiscard]] gsc_tensor written(int64_t column, int64_t param) const {
    const int64_t result = column * count_ + param;
    return call_.in_place(words_ + count_ + result, result);
  }

  const Call &call_;
  std::vector<int32_t> codes_;
  std::vector<int64_t> scaled_;
  int64_t words_ = 4;
  int64_t count_ = 0;
  bool is_coded_ = false;
};

// Where the parameters begin in the whole: operand 4 has the upper and then the lower 12 bits of their groups' numbers.
std::vector<int64_t> offsets_of(const Call &call, const std::vector<int64_t> &params) {
  const std::vector<double> words = call.values(4);
  std::vector<int64_t> found;
  for (const int64_t param : params) {
    const auto at = static_cast<size_t>(param);
    found.push_back(32 * (static_cast<int64_t>(words[at]) * 4096 + static_cast<int64_t>(words[words.size() / 2 + at])));
  }
  return found;
}

// lr, inv_scale, found_inf, step, offsets where state is coded, and the columns
void step(const Call &call) {
  const Columns columns(call);
  gradscaler::OptimizerOptions options{.kind = gradscaler::OptimizerKind{call.attribute<int32_t>("kind")},
                                       .flags = static_cast<uint32_t>(call.attribute<int32_t>("flags"))};
  for (const auto &[name, field] : {std::pair("beta1", &options.beta1),
                                    {"beta2", &options.beta2},
                                    {"beta3", &options.beta3},
                                    {"eps", &options.eps},
                                    {"eps_root", &options.eps_root},
                                    {"weight_decay", &options.weight_decay},
                                    {"momentum", &options.momentum},
                                    {"momentum_decay", &options.momentum_decay},
                                    {"alpha", &options.alpha},
                                    {"rho", &options.rho}}) {
    *field = call.attribute<double>(name);
  }
  options.state_format = gradscaler::StateFormat{call.attribute<int32_t>("state_format")};
  options.master_format = gradscaler::MasterFormat{call.attribute<int32_t>("master_format")};
  options.seed = static_cast<int64_t>(call.attribute<double>("seed"));
  const auto steps = static_cast<int64_t>(call.values(3).at(0));

  for (const std::vector<int64_t> &params : apart_by_gradient(call, columns.words(), columns.count())) {
    const auto list = [&](const auto &tensor_of_param) {
      std::vector<gsc_tensor> tensors;
      for (const int64_t param : params) tensors.push_back(tensor_of_param(param));
      return gradscaler::TensorList(call.context(), tensors);
    };
    std::vector<gradscaler::TensorList> slots;
    for (int64_t slot = 0; slot < columns.slots(); ++slot) {
      slots.push_back(list([&](int64_t param) { return columns.state(slot, param); }));
    }
    gradscaler::Optimizer optimizer(call.context(), options, list([&](int64_t param) { return columns.param(param); }),
                                    list([&](int64_t param) { return columns.grad(param); }), {},
                                    std::vector<gradscaler::TensorListRef>(slots.begin(), slots.end()));
    optimizer.set_device_lr(call.word<float>(0), 0, call.stream());
    optimizer.set_steps({.applied = steps, .skipped = 0}, call.stream());
    if (columns.is_coded()) optimizer.set_offsets(offsets_of(call, params), call.stream());
    optimizer.step_scaled(call.word<float>(1), call.word<float>(2), call.stream());
  }
}

// source, its scales if it has any, weights if `weighted` -> the same values in another dtype, and their scales
void convert(const Call &call) {
  const int32_t from = call.attribute<int32_t>("from"), to = call.attribute<int32_t>("to");
  const bool weighted = call.attribute<int32_t>("weighted") != 0;
  const int64_t first_weight = has_scales(from) ? 2 : 1;
  require(
      call.arg_count() == first_weight + static_cast<int64_t>(weighted) && call.ret_count() == (has_scales(to) ? 2 : 1),
      "a source and a result, each with its scales, are needed");
  const gsc_tensor scales = call.tensor(first_weight - 1), target_scales = call.result(call.ret_count() - 1);
  const gsc_tensor source = in_code(call.tensor(0), from, &scales),
                   target = in_code(call.result(0), to, &target_scales);
  std::vector<gsc_tensor> weights;
  if (weighted) weights.push_back(call.tensor(call.arg_count() - 1));
  gradscaler::ops::convert_state(call.context(), source, weights, target, call.stream());
}

xla_ffi::Error *error(const xla_ffi::CallFrame &frame, xla_ffi::ErrorCode code, const char *message) {
  xla_ffi::ErrorCreateArgs args{sizeof args, nullptr, message, code};
  return frame.api->error_create(&args);
}

template <void (*body)(const Call &)>
xla_ffi::Error *handle(xla_ffi::CallFrame *frame, gradscaler::DeviceType type) noexcept {
  const xla_ffi::Extension *extension = frame->extension_start;
  if (extension != nullptr && extension->type == xla_ffi::kMetadataExtension) {
    xla_ffi::Metadata &metadata = *reinterpret_cast<const xla_ffi::MetadataExtension *>(extension)->metadata;
    // Older runtimes have the same layouts, but refuse a version later than their own.
    const int32_t runtime = frame->api != nullptr ? frame->api->version.minor_version : xla_ffi::kOldestMinorVersion;
    metadata.api_version.major_version = xla_ffi::kMajorVersion;
    metadata.api_version.minor_version = std::min(runtime, xla_ffi::kNewestMinorVersion);
    metadata.traits = 0;
    return nullptr;
  }
  try {
    body(Call(*frame, type));
    return nullptr;
  } catch (const gradscaler::Error &failure) {
    const bool callers = failure.status() == GSC_ERROR_INVALID_ARGUMENT;
    return error(*frame, callers ? xla_ffi::kInvalidArgument : xla_ffi::kInternal, failure.what());
  } catch (const std::bad_alloc &) {
    return error(*frame, xla_ffi::kResourceExhausted, "out of memory");
  } catch (...) {
    return error(*frame, xla_ffi::kInternal, "a handler of gradscaler failed");
  }
}

}  // namespace

// What gradscaler/jax/_handlers.py looks up: gradscaler_<name> for the CPU, gradscaler_<name>_cuda for CUDA.
#define GSC_FFI_HANDLER(name, suffix, device)                            \
  extern "C" __attribute__((visibility("default")))                      \
  xla_ffi::Error *gradscaler_##name##suffix(xla_ffi::CallFrame *frame) { \
    return handle<name>(frame, gradscaler::DeviceType::device);          \
  }
#define GSC_FFI_HANDLERS(name) \
  GSC_FFI_HANDLER(name, , cpu) \
  GSC_FFI_HANDLER(name, _cuda, cuda)

GSC_FFI_HANDLERS(unscale_check)
GSC_FFI_HANDLERS(update_scale)
GSC_FFI_HANDLERS(step)
GSC_FFI_HANDLERS(convert)
