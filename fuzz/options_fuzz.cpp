// SPDX-License-Identifier: Apache-2.0
// Bytes as option structs and tensors. What is accepted must work: a scaler whose scale stays in its limits and does
// not grow on an overflow, an optimizer that steps, a list that returns its tensors.
#include <cmath>

#include "fuzz/bytes.h"
#include "tests/support/trainer.h"

using gsc_fuzz::Bytes;

namespace {

/// Defaults with some fields overwritten: whole structs of noise would not get past the first check. The size stays: what
/// lies beyond the struct is not the library's to read. tests/abi/struct_size_test.cpp has all sizes.
template <typename S>
void spoil(Bytes &bytes, S &options) {
  for (int64_t edits = bytes.below(6); edits > 0; --edits) {
    const size_t offset = bytes.take<uint8_t>() % (sizeof options / 4) * 4;
    if (bytes.below(2) == 0) {
      const auto value = bytes.take<uint32_t>();
      std::memcpy(reinterpret_cast<char *>(&options) + offset, &value, sizeof value);
    } else {
      const auto value = bytes.take<double>();
      const size_t at = offset / 8 * 8 + sizeof value <= sizeof options ? offset / 8 * 8 : 0;
      std::memcpy(reinterpret_cast<char *>(&options) + at, &value, sizeof value);
    }
  }
  options.struct_size = sizeof options;
}

void check_scaler(const gsc_test::Context &context, Bytes &bytes) {
  static const std::vector<int32_t> presets = gsc_test::scaler_presets();
  gsc_scaler_options options = gsc_test::preset_options(bytes.pick(presets));
  spoil(bytes, options);
  gsc_scaler *made = nullptr;
  const gsc_status status = gsc_scaler_create(context.get(), &options, &made);
  FUZZ_CHECK((status == GSC_OK) == (made != nullptr));
  if (status != GSC_OK) {
    FUZZ_CHECK(status != GSC_ERROR_INTERNAL);
    return;
  }
  const gsc_test::Scaler scaler(made);
  gsc_test::Buffer grads(GSC_FP32, 1);
  const gsc_test::List list = gsc_test::make_list(context, grads);
  float before = gsc_test::scale_of(scaler);
  FUZZ_CHECK(options.enabled == 0 || before == options.init_scale);
  for (int i = 0; i < 40 && options.enabled != 0; ++i) {
    const bool has_inf = bytes.below(3) == 0;
    grads.set(0, has_inf ? gsc_test::kInf : 0.0);
    // The inverse of a tiny scale is inf, and 0 * inf is NaN.
    const bool overflow = has_inf || std::isinf(1.0F / before);
    FUZZ_CHECK(gsc_scaler_check(scaler.get(), list.get(), nullptr) == GSC_OK);
    FUZZ_CHECK(gsc_scaler_update(scaler.get(), nullptr) == GSC_OK);
    const float now = gsc_test::scale_of(scaler);
    FUZZ_CHECK(!std::isnan(now) && now >= 0.0f);
    FUZZ_CHECK(overflow ? now <= before : now >= before);
    FUZZ_CHECK(now >= options.min_scale && (options.max_scale == 0.0f || now <= options.max_scale));
    before = now;
  }
}

void check_optimizer(const gsc_test::Context &context, Bytes &bytes) {
  static const std::vector<int32_t> kinds = gsc_test::optimizer_kinds();
  gsc_optimizer_options options = gsc_test::optimizer_options(bytes.pick(kinds));
  spoil(bytes, options);
  gsc_test::Buffer params(GSC_FP32, 3), grads(GSC_FP16, 3);
  const gsc_test::List p = gsc_test::make_list(context, params), g = gsc_test::make_list(context, grads);
  gsc_optimizer *made = nullptr;
  const gsc_status status = gsc_optimizer_create(context.get(), &options, p.get(), g.get(), nullptr, nullptr, 0, &made);
  FUZZ_CHECK((status == GSC_OK) == (made != nullptr));
  if (status != GSC_OK) {
    FUZZ_CHECK(status != GSC_ERROR_INTERNAL);
    return;
  }
  const gsc_test::Optimizer optimizer(made);
  FUZZ_CHECK(gsc_optimizer_step(optimizer.get(), nullptr) == GSC_OK);
  FUZZ_CHECK(gsc_test::applied_steps(optimizer) == 1);
  gsc_optimizer_options got{};
  got.struct_size = sizeof got;
  FUZZ_CHECK(gsc_optimizer_get_options(optimizer.get(), 0, &got) == GSC_OK);
  FUZZ_CHECK(std::memcmp(&got, &options, sizeof got) == 0);
}

void check_list(const gsc_test::Context &context, Bytes &bytes) {
  gsc_test::Buffer memory(GSC_FP32, 64);
  gsc_tensor tensors[4];
  for (gsc_tensor &t : tensors) {
    t = memory.tensor();
    t.data = memory.as<char>() + bytes.below(256);
    t.count = bytes.below(16);
    t.dtype = static_cast<int32_t>(bytes.below(8));
    if (bytes.below(8) == 0) t.count = bytes.take<int64_t>();
  }
  const char name[] = {static_cast<char>(bytes.take<char>()), static_cast<char>(bytes.take<char>()), '\0'};
  const char *const names[4] = {name, nullptr, name, ""};
  gsc_tensor_list *made = nullptr;
  const int64_t count = bytes.below(4) == 0 ? bytes.take<int64_t>() | (int64_t{1} << 40) : bytes.below(5);
  const gsc_status status = gsc_tensor_list_create(context.get(), tensors, count, names, &made);
  FUZZ_CHECK((status == GSC_OK) == (made != nullptr));
  FUZZ_CHECK(status == GSC_OK || status == GSC_ERROR_INVALID_ARGUMENT);
  const gsc_test::List list(made);
  for (const char *c = gsc_error_get_message(); *c != '\0'; ++c) FUZZ_CHECK(static_cast<unsigned char>(*c) >= 0x20);
  for (int64_t i = 0; status == GSC_OK && i < count; ++i) {
    gsc_tensor got{};
    FUZZ_CHECK(gsc_tensor_list_get_tensor(made, i, &got) == GSC_OK);
    FUZZ_CHECK(got.data == tensors[i].data && got.count == tensors[i].count && got.dtype == tensors[i].dtype);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > 4096) return 0;
  static const gsc_test::Context context = gsc_test::make_context();
  Bytes bytes(data, size);
  switch (bytes.below(3)) {
    case 0:
      check_scaler(context, bytes);
      break;
    case 1:
      check_optimizer(context, bytes);
      break;
    default:
      check_list(context, bytes);
  }
  return 0;
}
