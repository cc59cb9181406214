// SPDX-License-Identifier: Apache-2.0
//
// The library's objects as move-only owners, one-line makers that fail the test when the library refuses, and the
// assertions on status and message that all suites share. Plain C ABI underneath: nothing here hides a call.
#ifndef GRADSCALER_TESTS_SUPPORT_OBJECTS_H
#define GRADSCALER_TESTS_SUPPORT_OBJECTS_H
#include <gtest/gtest.h>

#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/buffer.h"

namespace gsc_test {

/// An object, and the pointer to it wherever the C interface takes one.
template <typename T, void (*destroy)(T *)>
struct Destroy {
  void operator()(T *object) const { destroy(object); }
};
template <typename T, void (*destroy)(T *)>
struct Owner : std::unique_ptr<T, Destroy<T, destroy>> {
  using std::unique_ptr<T, Destroy<T, destroy>>::unique_ptr;
  operator T *() const { return this->get(); }
};
using Context = Owner<gsc_context, gsc_context_destroy>;
using List = Owner<gsc_tensor_list, gsc_tensor_list_destroy>;
using Scaler = Owner<gsc_scaler, gsc_scaler_destroy>;
using Optimizer = Owner<gsc_optimizer, gsc_optimizer_destroy>;

/// The parts one after the other, for messages and names.
template <typename... Parts>
std::string text(const Parts &...parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

/// Runs a random driver: `world(seed)` makes `calls` calls and expects what its model has. GSC_DRIVER_SECONDS is how long,
/// otherwise it ends after `seeds`; GSC_DRIVER_SEED is the first. Stops at the first failure.
template <typename World>
void drive(uint64_t seeds, int calls, const World &world) {
  const auto number = [](const char *name, uint64_t otherwise) {
    const char *given = std::getenv(name);
    return given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
  };
  const uint64_t first = number("GSC_DRIVER_SEED", 0), seconds = number("GSC_DRIVER_SECONDS", 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  uint64_t seed = first;
  for (; seconds == 0 ? seed < first + seeds : std::chrono::steady_clock::now() < end; ++seed) {
    SCOPED_TRACE(text("GSC_DRIVER_SEED=", seed));
    world(seed);
    if (::testing::Test::HasFailure()) return;
  }
  std::cout << (seed - first) * calls << " calls\n";
}

/// Runs work(0) to work(count - 1), each on its own thread.
template <typename Work>
void on_threads(int count, const Work &work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(std::cref(work), i);
  for (std::thread &thread : threads) thread.join();
}

/// Expects GSC_OK and shows the message otherwise.
inline ::testing::AssertionResult is_ok(gsc_status status) {
  if (status == GSC_OK) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << gsc_status_get_name(status) << ": " << gsc_error_get_message();
}
#define EXPECT_GSC_OK(call) EXPECT_TRUE(::gsc_test::is_ok(call)) << #call
#define ASSERT_GSC_OK(call) ASSERT_TRUE(::gsc_test::is_ok(call)) << #call

/// A struct of zeros but for its struct_size.
template <typename T>
T with_size() {
  T value{};
  value.struct_size = sizeof value;
  return value;
}

/// Structs of the library have no padding.
template <typename T>
bool same_bytes(const T &a, const T &b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

inline gsc_error last_error() {
  auto error = with_size<gsc_error>();
  EXPECT_EQ(gsc_error_get_last(&error), GSC_OK);
  return error;
}

/// What the fields of an error say as the message begins: "gsc_optimizer_create: state[1][7].dtype ".
inline std::string beginning(const gsc_error &error) {
  std::string start = text(error.function, ": ", error.argument);
  if (error.index >= 0) start += text('[', error.index, ']');
  if (error.tensor >= 0) start += text('[', error.tensor, ']');
  if (*error.field != '\0') start += text('.', error.field);
  return *error.argument != '\0' ? start + ' ' : start;
}

/// Expects `status`, that the thread's message has every one of `words` in it, and that the fields of its last error
/// agree with both.
inline ::testing::AssertionResult is_error(gsc_status got, gsc_status status,
                                           std::initializer_list<const char *> words) {
  const std::string message = gsc_error_get_message();
  const auto failed = [&](const auto &...what) {
    return ::testing::AssertionFailure() << text(what...) << "; message: " << message;
  };
  if (got != status) {
    return failed("status ", gsc_status_get_name(got), " (", got, "), expected ", gsc_status_get_name(status));
  }
  const gsc_error error = last_error();
  const std::string start = beginning(error);
  if (error.status != status || !message.starts_with(start)) {
    return failed("gsc_error has status ", error.status, " and \"", start, '"');
  }
  if (status == GSC_ERROR_INVALID_ARGUMENT && *error.argument == '\0') return failed("no argument is named");
  if (std::strspn(error.argument, "abcdefghijklmnopqrstuvwxyz_") != std::strlen(error.argument)) {
    return failed("the argument is no parameter");
  }
  if (std::isalpha(static_cast<unsigned char>(message[start.size()])) == 0) {
    return failed("no verb follows the argument");
  }
  for (const char *word : words) {
    if (message.find(word) == std::string::npos) return failed("it does not name \"", word, '"');
  }
  return ::testing::AssertionSuccess();
}
#define EXPECT_GSC_ERROR(call, status, ...) EXPECT_TRUE(::gsc_test::is_error(call, status, {__VA_ARGS__})) << #call
#define EXPECT_INVALID(call, ...) EXPECT_GSC_ERROR(call, GSC_ERROR_INVALID_ARGUMENT, __VA_ARGS__)
#define EXPECT_BAD_STATE(call, ...) EXPECT_GSC_ERROR(call, GSC_ERROR_BAD_STATE, __VA_ARGS__)

/// A caller's allocator, which counts and can refuse.
struct HostMemory {
  int64_t calls = 0, live = 0;
  bool refuses = false;
  gsc_context_options options(int32_t device_type = GSC_DEVICE_CPU) {
    gsc_context_options result = GSC_CONTEXT_OPTIONS_INIT;
    result.device_type = device_type;
    result.num_threads = device_type == GSC_DEVICE_CPU ? 1 : 0;
    result.allocate = [](void *user, int64_t bytes, int64_t alignment) -> void * {
      auto *self = static_cast<HostMemory *>(user);
      if (self->refuses) return nullptr;
      ++self->calls;
      ++self->live;
      return ::operator new(bytes, std::align_val_t(alignment), std::nothrow);
    };
    result.release = [](void *user, void *memory, int64_t, int64_t alignment) {
      --static_cast<HostMemory *>(user)->live;
      ::operator delete(memory, std::align_val_t(alignment));
    };
    result.allocator_user = this;
    return result;
  }
};

/// The status of create(&object), which makes an object, destroyed at once, or leaves the pointer alone.
template <typename T, typename Create>
gsc_status status_of(void (*destroy)(T *), const Create &create) {
  auto *const untouched = reinterpret_cast<T *>(uintptr_t{0x10});
  T *object = untouched;
  const gsc_status status = create(&object);
  EXPECT_EQ(object == untouched, status != GSC_OK);
  if (status == GSC_OK) destroy(object);
  return status;
}
inline gsc_status status_of_context(const gsc_context_options &options) {
  return status_of(gsc_context_destroy, [&](gsc_context **out) { return gsc_context_create(&options, out); });
}
inline gsc_status status_of_list(gsc_context *context, const std::vector<gsc_tensor> &tensors,
                                 const char *const *names = nullptr) {
  return status_of(gsc_tensor_list_destroy, [&](gsc_tensor_list **out) {
    return gsc_tensor_list_create(context, tensors.data(), std::ssize(tensors), names, out);
  });
}
inline gsc_status status_of_optimizer(gsc_context *context, const gsc_optimizer_options *options,
                                      gsc_tensor_list *params, gsc_tensor_list *grads,
                                      const std::vector<gsc_tensor_list *> &state = {},
                                      gsc_tensor_list *copy = nullptr) {
  return status_of(gsc_optimizer_destroy, [&](gsc_optimizer **out) {
    return gsc_optimizer_create(context, options, params, grads, copy, state.empty() ? nullptr : state.data(),
                                std::ssize(state), out);
  });
}

inline Context make_context(const gsc_context_options &options) {
  gsc_context *context = nullptr;
  EXPECT_GSC_OK(gsc_context_create(&options, &context));
  return Context(context);
}
/// A CPU context. 0 threads means all.
inline Context make_context(int32_t threads = 1, int32_t target = GSC_CPU_BEST) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.num_threads = threads;
  options.cpu_target = target;
  return make_context(options);
}
/// Names tests by their dtype.
inline std::string name_of_dtype(const testing::TestParamInfo<int32_t> &info) { return dtype_name(info.param); }
/// Tests on a CPU context.
class OnCpu : public ::testing::Test {
 protected:
  const Context context = make_context();
};
/// A CPU context whose regions are run by the caller's parallel-for.
inline Context make_context(gsc_parallel_for_fn parallel_for, void *user, int32_t threads = 4) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.num_threads = threads;
  options.parallel_for = parallel_for;
  options.parallel_for_user = user;
  return make_context(options);
}

inline List make_list(const Context &context, const std::vector<gsc_tensor> &tensors) {
  gsc_tensor_list *list = nullptr;
  EXPECT_GSC_OK(gsc_tensor_list_create(context, tensors.data(), std::ssize(tensors), nullptr, &list));
  return List(list);
}
inline gsc_tensor tensor_at(const gsc_tensor_list *list, int64_t index) {
  gsc_tensor tensor{};
  EXPECT_GSC_OK(gsc_tensor_list_get_tensor(list, index, &tensor));
  return tensor;
}
inline gsc_status set_pointers(gsc_tensor_list *list, const std::vector<void *> &data) {
  return gsc_tensor_list_set_pointers(list, data.data(), std::ssize(data), nullptr);
}
inline List make_list(const Context &context, std::vector<Buffer> &buffers) {
  return make_list(context, tensors_of(buffers));
}
inline List make_list(const Context &context, Buffer &buffer) {
  return make_list(context, std::vector<gsc_tensor>{buffer.tensor()});
}

inline gsc_scaler_options scaler_options(float init_scale = 65536.0f, int32_t growth_interval = 2000) {
  gsc_scaler_options options = GSC_SCALER_OPTIONS_INIT;
  options.init_scale = init_scale;
  options.growth_interval = growth_interval;
  return options;
}
/// Of a scaler that does nothing.
inline gsc_scaler_options disabled_options() {
  gsc_scaler_options options = scaler_options(1024.0f, 1);
  options.enabled = 0;
  return options;
}
inline gsc_scaler_options preset_options(int32_t preset) {
  gsc_scaler_options options;
  EXPECT_GSC_OK(gsc_scaler_options_init(&options, sizeof options, preset));
  return options;
}
inline Scaler make_scaler(const Context &context, const gsc_scaler_options &options) {
  gsc_scaler *scaler = nullptr;
  EXPECT_GSC_OK(gsc_scaler_create(context, &options, &scaler));
  return Scaler(scaler);
}
inline Scaler make_scaler(const Context &context, float init_scale) {
  return make_scaler(context, scaler_options(init_scale));
}

inline gsc_optimizer_options optimizer_options(int32_t kind) {
  gsc_optimizer_options options;
  EXPECT_GSC_OK(gsc_optimizer_options_init(&options, sizeof options, kind));
  return options;
}
/// SGD, whose parameters show the gradients that it used.
inline gsc_optimizer_options sgd_options(double lr = 1.0) {
  gsc_optimizer_options options = optimizer_options(GSC_SGD);
  options.lr = lr;
  return options;
}
/// Every code that an init function takes.
template <typename Options>
std::vector<int32_t> codes_of(gsc_status (*init)(Options *, uint32_t, int32_t)) {
  std::vector<int32_t> codes;
  Options options;
  for (int32_t code = 0; init(&options, sizeof options, code) == GSC_OK; ++code) codes.push_back(code);
  return codes;
}
/// Every kind of optimizer, and every preset of a scaler, that the library has: a suite that draws or walks them takes
/// them from here, so that a new one is among them.
inline std::vector<int32_t> optimizer_kinds() { return codes_of(gsc_optimizer_options_init); }
inline std::vector<int32_t> scaler_presets() { return codes_of(gsc_scaler_options_init); }
inline Optimizer make_optimizer(const Context &context, const gsc_optimizer_options &options, const List &params,
                                const List &grads, const List &model_copy = nullptr,
                                const std::vector<gsc_tensor_list *> &state = {}) {
  gsc_optimizer *optimizer = nullptr;
  EXPECT_GSC_OK(gsc_optimizer_create(context, &options, params, grads, model_copy,
                                     state.empty() ? nullptr : state.data(), std::ssize(state), &optimizer));
  return Optimizer(optimizer);
}

inline float scale_of(gsc_scaler *scaler) {
  float scale = -1.0f;
  EXPECT_GSC_OK(gsc_scaler_get_scale_sync(scaler, &scale, nullptr));
  return scale;
}
inline gsc_report report_of(gsc_scaler *scaler, const gsc_tensor_list *grads = nullptr) {
  auto report = with_size<gsc_report>();
  EXPECT_GSC_OK(gsc_scaler_get_report_sync(scaler, grads, &report, nullptr));
  return report;
}
inline gsc_status report_status(gsc_scaler *scaler, const gsc_tensor_list *grads = nullptr) {
  auto report = with_size<gsc_report>();
  return gsc_scaler_get_report_sync(scaler, grads, &report, nullptr);
}
inline gsc_scaler_state state_of(gsc_scaler *scaler) {
  auto state = with_size<gsc_scaler_state>();
  EXPECT_GSC_OK(gsc_scaler_get_state_sync(scaler, &state, nullptr));
  return state;
}
inline int64_t applied_steps(gsc_optimizer *optimizer, gsc_stream stream = nullptr) {
  int64_t applied = -1;
  EXPECT_GSC_OK(gsc_optimizer_get_steps_sync(optimizer, &applied, nullptr, stream));
  return applied;
}
inline int64_t skipped_steps(gsc_optimizer *optimizer) {
  int64_t skipped = -1;
  EXPECT_GSC_OK(gsc_optimizer_get_steps_sync(optimizer, nullptr, &skipped, nullptr));
  return skipped;
}

/// A checkpoint: all state and counts.
inline Image saved_image(const gsc_optimizer *optimizer) {
  int64_t size = 0;
  EXPECT_GSC_OK(gsc_optimizer_get_save_size(optimizer, &size));
  Image image(size);
  EXPECT_GSC_OK(gsc_optimizer_save_sync(const_cast<gsc_optimizer *>(optimizer), image.data(), size, nullptr));
  return image;
}
inline gsc_status load_image(gsc_optimizer *optimizer, const Image &image) {
  return gsc_optimizer_load_sync(optimizer, image.data(), std::ssize(image), nullptr);
}

/// Every GSC_CPU_* target that this processor and this build accept.
inline std::vector<int32_t> usable_cpu_targets() {
  std::vector<int32_t> result;
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.num_threads = 1;
  for (const int32_t target : {GSC_CPU_BASELINE, GSC_CPU_AVX2, GSC_CPU_AVX512, GSC_CPU_NEON_BF16}) {
    options.cpu_target = target;
    gsc_context *context = nullptr;
    if (gsc_context_create(&options, &context) == GSC_OK) result.push_back(target);
    gsc_context_destroy(context);
  }
  return result;
}

}  // namespace gsc_test
#endif
