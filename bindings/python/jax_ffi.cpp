// SPDX-License-Identifier: Apache-2.0
//
// XLA FFI handlers over the C ABI, for the CPU and CUDA: unscale and check, the update of a scale by PyTorch's rule, and
// an optimizer step. Outputs alias the operands that they replace; XLA copies an operand first where it is still needed.
// Only one context per device is kept between calls, so handlers may run concurrently. gradscaler/jax/ defines the
// operands; the ABI is in xla_ffi.h.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradscaler/gradscaler.h"
#include "xla_ffi.h"

namespace {

struct Failure {
  xla_ffi::ErrorCode code;
  std::string message;
};

void require(bool condition, const char *message) {
  if (!condition) throw Failure{xla_ffi::kInvalidArgument, message};
}

void check(gsc_status status) {
  if (status == GSC_OK) return;
  const bool callers = status == GSC_ERROR_INVALID_ARGUMENT;
  throw Failure{callers ? xla_ffi::kInvalidArgument : xla_ffi::kInternal, gsc_error_get_message()};
}

// A device with all its threads, opened by the first call and kept: a library in use is not unloaded.
gsc_context *context_of(int32_t device_type, int32_t device_index) {
  static std::mutex mutex;
  static auto &contexts = *new std::map<std::pair<int32_t, int32_t>, gsc_context *>;
  const std::lock_guard<std::mutex> lock(mutex);
  gsc_context *&context = contexts[{device_type, device_index}];
  if (context == nullptr) {
    gsc_context_options options;
    check(gsc_context_options_init(&options, sizeof options));
    options.device_type = device_type;
    options.device_index = device_index;
    check(gsc_context_create(&options, &context));
  }
  return context;
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
  Call(const xla_ffi::CallFrame &frame, int32_t device_type) : frame_(frame) {
    context_ = context_of(device_type, device_type == GSC_DEVICE_CUDA ? place_on_cuda() : 0);
    on_host_ = device_type == GSC_DEVICE_CPU;
  }

  [[nodiscard]] gsc_context *context() const { return context_; }
  [[nodiscard]] gsc_stream stream() const { return stream_; }
  [[nodiscard]] bool on_host() const { return on_host_; }
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

  [[nodiscard]] gsc_tensor in_place(int64_t arg, int64_t ret) const {
    const gsc_tensor to = tensor_of(*frame_.rets.buffers[ret]);
    require(to.count == 0 || to.data == frame_.args.buffers[arg]->data,
            "a result does not share the memory of the operand that it replaces");
    return to;
  }

  // The value of a non-negative float. Waits for the device unless it is the CPU.
  [[nodiscard]] double value(int64_t arg) const;

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
    throw Failure{xla_ffi::kInvalidArgument, std::string("there is no attribute ") + name + " of the right type"};
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
  gsc_context *context_ = nullptr;
  gsc_stream stream_ = nullptr;
  bool on_host_ = true;
};

struct Destroy {
  void operator()(gsc_tensor_list *list) const { gsc_tensor_list_destroy(list); }
  void operator()(gsc_optimizer *optimizer) const { gsc_optimizer_destroy(optimizer); }
};
using List = std::unique_ptr<gsc_tensor_list, Destroy>;

List make_list(gsc_context *context, const std::vector<gsc_tensor> &tensors) {
  gsc_tensor_list *list = nullptr;
  check(gsc_tensor_list_create(context, tensors.data(), static_cast<int64_t>(tensors.size()), nullptr, &list));
  return List(list);
}

double Call::value(int64_t arg) const {
  const float *value = word<float>(arg);
  if (on_host_) return *value;
  // The C ABI's only way to read a number from any device's memory.
  const List list = make_list(context_, {tensor(arg)});
  gsc_tensor_diagnosis found;
  check(gsc_tensor_list_diagnose_sync(list.get(), &found, nullptr, 1, stream_));
  return found.amax;
}

// inv_scale, found_inf, tensors... -> found_inf, tensors...
void unscale_check(const Call &call) {
  require(call.arg_count() >= 2 && call.ret_count() == call.arg_count() - 1,
          "a result is needed for each operand but the first");
  std::vector<gsc_tensor> tensors;
  for (int64_t i = 2; i < call.arg_count(); ++i) tensors.push_back(call.in_place(i, i - 1));
  check(gsc_ops_unscale_check(call.context(), tensors.data(), static_cast<int64_t>(tensors.size()),
                              call.word_in_place<float>(1, 0), call.word<float>(0), call.stream()));
}

// scale, growth_tracker, found_inf -> scale, growth_tracker
void update_scale(const Call &call) {
  require(call.arg_count() == 3 && call.ret_count() == 2, "three operands and two results are needed");
  check(gsc_ops_update_scale(call.context(), call.word_in_place<float>(0, 0), call.word_in_place<int32_t>(1, 1),
                             call.word<float>(2), call.attribute<double>("growth_factor"),
                             call.attribute<double>("backoff_factor"), call.attribute<int32_t>("growth_interval"),
                             call.stream()));
}

// XLA keeps equal gradients in one buffer, but in a list memory may stand once. The parameters in as few parts as that
// takes; each is stepped on for itself.
std::vector<std::vector<int64_t>> apart_by_gradient(const Call &call, int64_t count) {
  std::vector<std::vector<int64_t>> parts(1);
  std::map<const void *, size_t> seen;
  for (int64_t i = 0; i < count; ++i) {
    const gsc_tensor grad = call.tensor(4 + i);
    const size_t part = grad.count == 0 ? 0 : seen[grad.data]++;
    if (part == parts.size()) parts.emplace_back();
    parts[part].push_back(i);
  }
  return parts;
}

// lr, inv_scale, found_inf, step, grads..., params..., state slot after state slot... -> params..., slots...
void step(const Call &call) {
  const int64_t slots = call.attribute<int32_t>("slots");
  const int64_t count = call.ret_count() / (1 + slots);
  require(call.ret_count() == (1 + slots) * count && call.arg_count() == 4 + (2 + slots) * count,
          "four operands, and for each parameter its gradient and a result for it and each of its states are needed");
  gsc_optimizer_options options;
  check(gsc_optimizer_options_init(&options, sizeof options, call.attribute<int32_t>("kind")));
  options.flags = static_cast<uint32_t>(call.attribute<int32_t>("flags"));
  for (const auto &[name, field] : {std::pair("beta1", &options.beta1),
                                    {"beta2", &options.beta2},
                                    {"beta3", &options.beta3},
                                    {"eps", &options.eps},
                                    {"eps_root", &options.eps_root},
                                    {"weight_decay", &options.weight_decay},
                                    {"momentum", &options.momentum},
                                    {"alpha", &options.alpha},
                                    {"rho", &options.rho}}) {
    *field = call.attribute<double>(name);
  }
  const auto steps = static_cast<int64_t>(call.value(3));

  for (const std::vector<int64_t> &params : apart_by_gradient(call, count)) {
    // Gradients, then the outputs: parameters and state.
    std::vector<List> lists;
    for (int64_t kind = 0; kind < 2 + slots; ++kind) {
      std::vector<gsc_tensor> tensors;
      for (const int64_t param : params) {
        const int64_t i = kind * count + param;
        tensors.push_back(kind == 0 ? call.tensor(4 + i) : call.in_place(4 + i, i - count));
      }
      lists.push_back(make_list(call.context(), tensors));
    }
    std::vector<gsc_tensor_list *> state;
    for (int64_t slot = 0; slot < slots; ++slot) state.push_back(lists[2 + slot].get());
    gsc_optimizer *made = nullptr;
    check(gsc_optimizer_create(call.context(), &options, lists[1].get(), lists[0].get(), nullptr, state.data(),
                               static_cast<int32_t>(slots), &made));
    const std::unique_ptr<gsc_optimizer, Destroy> optimizer(made);
    check(gsc_optimizer_set_device_lr(made, 0, call.word<float>(0), call.stream()));
    check(gsc_optimizer_set_steps(made, steps, 0, call.stream()));
    check(gsc_optimizer_step_scaled(made, call.word<float>(1), call.word<float>(2), call.stream()));
  }
}

xla_ffi::Error *error(const xla_ffi::CallFrame &frame, xla_ffi::ErrorCode code, const char *message) {
  xla_ffi::ErrorCreateArgs args{sizeof args, nullptr, message, code};
  return frame.api->error_create(&args);
}

template <void (*body)(const Call &)>
xla_ffi::Error *handle(xla_ffi::CallFrame *frame, int32_t device_type) noexcept {
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
    body(Call(*frame, device_type));
    return nullptr;
  } catch (const Failure &failure) {
    return error(*frame, failure.code, failure.message.c_str());
  } catch (const std::bad_alloc &) {
    return error(*frame, xla_ffi::kResourceExhausted, "out of memory");
  } catch (...) {
    return error(*frame, xla_ffi::kInternal, "a handler of gradscaler failed");
  }
}

}  // namespace

// What gradscaler/jax/_handlers.py looks up: gradscaler_<name> for the CPU, gradscaler_<name>_cuda for CUDA.
#define GSC_FFI_HANDLERS(name)                                                                                     \
  extern "C" __attribute__((visibility("default"))) xla_ffi::Error *gradscaler_##name(xla_ffi::CallFrame *frame) { \
    return handle<name>(frame, GSC_DEVICE_CPU);                                                                    \
  }                                                                                                                \
  extern "C" __attribute__((visibility("default")))                                                                \
  xla_ffi::Error *gradscaler_##name##_cuda(xla_ffi::CallFrame *frame) {                                            \
    return handle<name>(frame, GSC_DEVICE_CUDA);                                                                   \
  }

GSC_FFI_HANDLERS(unscale_check)
GSC_FFI_HANDLERS(update_scale)
GSC_FFI_HANDLERS(step)
