// SPDX-License-Identifier: Apache-2.0
//
// Ownership, errors, contexts, tensors and lists of the C++ layer.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <gradscaler/vulkan.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace gradscaler {
namespace {

template <typename Object>
constexpr bool move_only = std::is_nothrow_move_constructible_v<Object> &&std::is_nothrow_move_assignable_v<Object> &&
                           !std::is_copy_constructible_v<Object> && !std::is_copy_assignable_v<Object>;
static_assert(move_only<Context> && move_only<TensorList> && move_only<GradScaler> && move_only<Optimizer>);
static_assert(std::is_base_of_v<std::runtime_error, Error>);

// What may be a 16-bit buffer: writable, contiguous, two bytes wide, and alive after the call.
static_assert(HalfRange<std::vector<uint16_t> &> && HalfRange<std::span<int16_t>> && HalfRange<uint16_t (&)[4]>);
static_assert(!HalfRange<std::vector<uint16_t>>, "a temporary would dangle");
static_assert(!HalfRange<const std::vector<uint16_t> &>, "read only");
static_assert(!HalfRange<std::vector<float> &> && !HalfRange<std::vector<uint8_t> &>);

TEST(Library, SaysWhatTheCHeaderSays) {
  EXPECT_STREQ(library_get_version(), gsc_library_get_version());
  EXPECT_EQ(library_get_abi_version(), GSC_ABI_VERSION);
  EXPECT_STREQ(library_get_build_info(), gsc_library_get_build_info());
  EXPECT_NE(std::string(library_get_build_info()).find(", CPU kernels: baseline"), std::string::npos);
  EXPECT_STREQ(status_get_name(GSC_ERROR_BAD_STATE), gsc_status_get_name(GSC_ERROR_BAD_STATE));
  EXPECT_EQ(device_get_count(DeviceType::cpu), 1);
  const gsc_device_info info = device_get_info(DeviceType::cpu);
  EXPECT_EQ(info.device_type, GSC_DEVICE_CPU);
  EXPECT_GE(info.units, 1);
}

TEST(Experimental, VulkanDevice) {
  int32_t count = -1;
  EXPECT_EQ(gsc_device_get_count(GSCX_DEVICE_VULKAN, &count), GSC_OK);
  EXPECT_EQ(device_get_count(experimental::device_vulkan), count);
  gscx_vulkan_device handles{};
  handles.struct_size = sizeof handles;
  const auto fails_with = [&](const ContextOptions &options) {
    try {
      experimental::context_create_vulkan(handles, options);
      return std::string();
    } catch (const Error &error) {
      EXPECT_STREQ(error.details().function, "gscx_context_create_vulkan");
      return std::string(error.details().argument);
    }
  };
  EXPECT_EQ(fails_with({}), "device");  // whose handles are NULL, or which this build cannot open
  EXPECT_EQ(fails_with({.num_threads = -1}), "options");
}

TEST(Error, CarriesStatusAndMessage) {
  try {
    Context context({.num_threads = -1});
    FAIL() << "a negative thread count was accepted";
  } catch (const Error &error) {
    EXPECT_EQ(error.status(), GSC_ERROR_INVALID_ARGUMENT);
    EXPECT_STREQ(error.what(), error_get_message());
    EXPECT_NE(std::string(error.what()).find("num_threads"), std::string::npos) << error.what();
    EXPECT_STREQ(error.details().function, "gsc_context_create");
    EXPECT_STREQ(error.details().argument, "options");
    EXPECT_STREQ(error.details().field, "num_threads");
  }
  error_clear();
  EXPECT_STREQ(error_get_message(), "");
  EXPECT_THROW(device_get_info(DeviceType::cpu, 5), Error);
}

TEST(Handle, MovesReleasesAndAdopts) {
  Context first({.num_threads = 1});
  gsc_context *raw = first.get();
  ASSERT_NE(raw, nullptr);
  Context second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): the state of a moved-from handle is tested
  EXPECT_TRUE(second);
  EXPECT_EQ(second.get(), raw);
  gsc_context *released = second.release();
  EXPECT_EQ(released, raw);
  EXPECT_FALSE(second);
  const Context third = Context::adopt(released);
  EXPECT_EQ(third.get_cpu().num_threads, 1);

  Context fourth({.num_threads = 2});
  fourth = Context({.num_threads = 3});
  EXPECT_EQ(fourth.get_cpu().num_threads, 3);
}

TEST(Handle, ParentsMayGoFirst) {
  std::vector<float> weights = {1.0f}, gradients = {1.0f};
  auto context = std::make_unique<Context>();
  auto params = std::make_unique<TensorList>(*context, tensor(weights));
  auto grads = std::make_unique<TensorList>(*context, tensor(gradients));
  Optimizer optimizer(*context, {.kind = OptimizerKind::sgd, .lr = 0.5}, *params, *grads);
  GradScaler scaler(*context, {.init_scale = 1.0f});
  context.reset();
  params.reset();
  grads.reset();
  scaler.step_and_update(optimizer);
  EXPECT_EQ(weights[0], 0.5f);
}

TEST(Context, KnowsItsDevice) {
  const Context context({.num_threads = 2, .cpu_target = CpuTarget::baseline});
  EXPECT_EQ(context.get_device().type, DeviceType::cpu);
  EXPECT_EQ(context.get_device().index, 0);
  EXPECT_EQ(context.get_cpu().target, CpuTarget::baseline);
  EXPECT_EQ(context.get_cpu().num_threads, 2);
  EXPECT_GT(context.get_memory().host, 0);
  EXPECT_EQ(context.get_memory().device, 0);
}

TEST(Context, LogCanBeReplaced) {
  std::vector<float> weights = {1.0f}, gradients = {INFINITY};
  int messages = 0;
  Context context;
  context.set_log([](void *user, int32_t, const char *) { ++*static_cast<int *>(user); }, &messages);
  const TensorList params(context, tensor(weights)), grads(context, tensor(gradients));
  Optimizer optimizer(context, {}, params, grads);
  GradScaler scaler(context, {.init_scale = 1.0f, .min_scale = 1.0f, .floor_action = FloorAction::report});
  scaler.step_and_update(optimizer);
  scaler.get_report_sync();
  EXPECT_GT(messages, 0);
  const int before = messages;
  context.set_log(nullptr);
  scaler.step_and_update(optimizer);
  scaler.get_report_sync();
  EXPECT_EQ(messages, before);
}

TEST(Tensor, TakesItsTypeFromTheSpan) {
  std::vector<float> floats(3);
  std::array<double, 2> doubles{};
  uint16_t halfs[5] = {};
  EXPECT_EQ(tensor(floats).data, floats.data());
  EXPECT_EQ(tensor(floats).count, 3);
  EXPECT_EQ(tensor(floats).dtype, GSC_FP32);
  EXPECT_EQ(tensor(doubles).dtype, GSC_FP64);
  EXPECT_EQ(tensor(doubles).count, 2);
  EXPECT_EQ(tensor(halfs, DType::bf16).dtype, GSC_BF16);
  EXPECT_EQ(tensor(halfs, DType::fp16).dtype, GSC_FP16);
  EXPECT_EQ(tensor(halfs, DType::fp16).count, 5);
  EXPECT_EQ(tensor(floats.data() + 1, 2, DType::fp32).data, floats.data() + 1);
  EXPECT_THROW(tensor(halfs, DType::fp32), Error);
}

TEST(TensorList, CountsNamesAndRebinds) {
  std::vector<float> a(4), b(2), c(4), d(2);
  const Context context;
  const std::array<const char *, 2> names = {"layer.weight", nullptr};
  TensorList list(context, {tensor(a), tensor(b)}, names);
  EXPECT_EQ(list.get_count(), 2);
  EXPECT_EQ(list.get_name(0), "layer.weight");
  EXPECT_EQ(list.get_name(1), "");
  EXPECT_EQ(list.get_tensor(1).data, b.data());
  const std::array<void *, 2> data = {c.data(), d.data()};
  list.set_pointers(data);
  EXPECT_EQ(list.get_tensor(0).data, c.data());
  EXPECT_EQ(list.get_tensor(1).data, d.data());
  EXPECT_THROW(list.get_tensor(2), Error);

  const TensorListRef borrowed = list;
  EXPECT_EQ(borrowed.get(), list.get());
  EXPECT_EQ(borrowed.get_count(), 2);
  EXPECT_THROW(TensorListRef().get_count(), Error);
}

TEST(TensorList, TakesOneSeveralOrNone) {
  std::vector<float> a(4), b(2);
  const Context context;
  std::vector<Tensor> tensors = {tensor(a), tensor(b)};
  EXPECT_EQ(TensorList(context, tensor(a)).get_count(), 1);
  EXPECT_EQ(TensorList(context, {tensor(a)}).get_count(), 1);
  EXPECT_EQ(TensorList(context, tensors).get_count(), 2);
  EXPECT_EQ(TensorList(context, std::span<const Tensor>(tensors).first(1)).get_count(), 1);
  EXPECT_EQ(TensorList(context, std::span(tensors)).get_count(), 2);
  const std::array<Tensor, 2> fixed = {tensor(a), tensor(b)};
  EXPECT_EQ(TensorList(context, fixed).get_count(), 2);
  const Tensor plain[] = {tensor(a), tensor(b)};
  EXPECT_EQ(TensorList(context, plain).get_count(), 2);
  EXPECT_EQ(TensorList(context, std::vector<Tensor>()).get_count(), 0);
}

TEST(TensorList, BadInputThrows) {
  std::vector<float> a(4);
  const Context context;
  EXPECT_THROW(TensorList(context, {tensor(a), tensor(a)}), Error) << "overlap";
  const std::array<const char *, 2> names = {"one", "two"};
  EXPECT_THROW(TensorList(context, tensor(a), names), Error) << "more names than tensors";
}

TEST(TensorList, Diagnoses) {
  std::vector<float> a = {0.0f, 3.0f, -4.0f, INFINITY, NAN}, b = {1.0f};
  const Context context;
  const TensorList list(context, {tensor(a), tensor(b)});
  const Diagnosis plain = list.diagnose_sync();
  ASSERT_EQ(plain.tensors.size(), 2u);
  EXPECT_TRUE(plain.histogram.empty());
  EXPECT_EQ(plain.tensors[0].count, 5);
  EXPECT_EQ(plain.tensors[0].inf_count, 1);
  EXPECT_EQ(plain.tensors[0].nan_count, 1);
  EXPECT_EQ(plain.tensors[0].zero_count, 1);
  EXPECT_EQ(plain.tensors[0].first_nonfinite, 3);
  EXPECT_EQ(plain.tensors[0].l2_norm, 5.0);
  const Diagnosis full = list.diagnose_sync(true);
  ASSERT_EQ(full.histogram.size(), 2u * GSC_EXPONENT_BINS);
  EXPECT_EQ(full.histogram[0 - GSC_EXPONENT_MIN + 1], 1);                  // 3: exponent 1
  EXPECT_EQ(full.histogram[0 - GSC_EXPONENT_MIN + 2], 1);                  // -4: exponent 2
  EXPECT_EQ(full.histogram[GSC_EXPONENT_BINS + 0 - GSC_EXPONENT_MIN], 1);  // 1 of the second tensor: exponent 0

  // The largest fp16 exponent is 15; two binades below its overflow limit 2^16 is 2^14, and 2^14 / 2^0 is 2^14.
  const std::span<const int64_t> second = std::span<const int64_t>(full.histogram).last(GSC_EXPONENT_BINS);
  const Recommendation recommendation = histogram_recommend_scale(second, 1.0f, DType::fp16);
  EXPECT_GE(recommendation.scale, 0x1p12f);
  EXPECT_LE(recommendation.scale, 0x1p14f);
  EXPECT_EQ(recommendation.flushed, 0.0);
  EXPECT_THROW(histogram_recommend_scale(second, 0.0f, DType::fp16), Error);
}

}  // namespace
}  // namespace gradscaler
