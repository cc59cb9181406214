// SPDX-License-Identifier: Apache-2.0
//
// struct_size in every other struct that carries it: those passed in are refused with a size that no release had, those
// filled in are written to that size and no further. What the fields mean is tested elsewhere.
#include <array>
#include <type_traits>

#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

constexpr unsigned char kFill = 0xa5;
constexpr size_t kRoom = 512;

class StructSize : public ::testing::Test {
 protected:
  StructSize() { EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler_, trainer_, nullptr)); }

  static std::string refusal(uint32_t bad, uint32_t size) {
    return text("is ", bad,
                bad > size ? ", from a newer header than this library, whose struct has "
                           : "; set it to the sizeof of the struct, ",
                size);
  }

  // Calls a function that fills in a Struct with good and bad sizes.
  template <typename Struct, typename Fill>
  void check_output(const Fill &fill) {
    alignas(16) std::array<unsigned char, kRoom> bytes;
    const auto run = [&](uint32_t size) {
      bytes.fill(kFill);
      std::memcpy(bytes.data(), &size, sizeof size);
      return fill(reinterpret_cast<Struct *>(bytes.data()));
    };
    const uint32_t size = sizeof(Struct);
    ASSERT_GSC_OK(run(size));
    uint32_t written = 0;
    std::memcpy(&written, bytes.data(), sizeof written);
    EXPECT_EQ(written, size);
    size_t changed = 0;
    for (size_t i = 4; i < size; ++i) changed += bytes[i] != kFill;
    EXPECT_GT(changed, 0u) << "nothing was written";
    for (size_t i = size; i < kRoom; ++i) ASSERT_EQ(bytes[i], kFill) << "byte " << i << " beyond the struct";
    for (uint32_t bad : {0u, 3u, size - 1, size + 1, size + 8, UINT32_MAX}) {
      EXPECT_INVALID(run(bad), "struct_size", refusal(bad, size).c_str());
      for (size_t i = 4; i < kRoom; ++i) ASSERT_EQ(bytes[i], kFill) << "struct_size " << bad << ", byte " << i;
    }
    EXPECT_EQ(fill(static_cast<Struct *>(nullptr)), GSC_ERROR_INVALID_ARGUMENT);
  }

  // Calls a function that takes a Struct, with bad sizes.
  template <typename Struct, typename Take>
  void check_input(Struct good, const Take &take) {
    const uint32_t size = sizeof(Struct);
    for (uint32_t bad : {0u, 3u, size - 1, size + 1, size + 8, UINT32_MAX}) {
      Struct given = good;
      given.struct_size = bad;
      EXPECT_INVALID(take(&given), "struct_size", refusal(bad, size).c_str());
    }
    good.struct_size = size;
    EXPECT_GSC_OK(take(&good));
  }

  // The same of a function that makes an object, which is destroyed again.
  template <typename Struct, typename T, typename Create>
  void check_creation(const Struct &good, void (*destroy)(T *), const Create &create) {
    check_input(good, [&](const Struct *in) {
      T *made = nullptr;
      const gsc_status status = create(in, &made);
      EXPECT_EQ(made != nullptr, status == GSC_OK);
      destroy(made);
      return status;
    });
  }

  Context context_ = make_context();
  Trainer trainer_{context_, {.options = optimizer_options(GSC_ADAMW), .counts = {4}}};
  Scaler scaler_ = make_scaler(context_, scaler_options());
};

// They take the size as an argument, which check_output leaves in the struct.
template <typename Struct, typename... Kind>
auto with_the_size_in(gsc_status (*init)(Struct *, uint32_t, Kind...), std::type_identity_t<Kind>... kind) {
  return [=](Struct *out) { return init(out, out != nullptr ? out->struct_size : sizeof *out, kind...); };
}

TEST_F(StructSize, OfInitFunctions) {
  check_output<gsc_context_options>(with_the_size_in(gsc_context_options_init));
  check_output<gsc_scaler_options>(with_the_size_in(gsc_scaler_options_init, GSC_PRESET_TORCH));
  check_output<gsc_scaler_options>(with_the_size_in(gsc_scaler_options_init, GSC_PRESET_MEGATRON));
  check_output<gsc_optimizer_options>(with_the_size_in(gsc_optimizer_options_init, GSC_LION));
}

TEST_F(StructSize, LastError) {
  check_output<gsc_error>([](auto *out) { return gsc_error_get_last(out); });
}

TEST_F(StructSize, DeviceInfo) {
  check_output<gsc_device_info>([](auto *out) { return gsc_device_get_info(GSC_DEVICE_CPU, 0, out); });
}

TEST_F(StructSize, Report) {
  check_output<gsc_report>([&](auto *out) { return gsc_scaler_get_report_sync(scaler_, nullptr, out, nullptr); });
}

TEST_F(StructSize, ReportAsync) {
  check_output<gsc_report>([&](auto *out) { return gsc_scaler_read_report_async(scaler_, nullptr, out, nullptr); });
}

TEST_F(StructSize, DeviceState) {
  check_output<gsc_device_state>([&](auto *out) { return gsc_scaler_get_device_state(scaler_, nullptr, out); });
}

TEST_F(StructSize, ScalerState) {
  check_output<gsc_scaler_state>([&](auto *out) { return gsc_scaler_get_state_sync(scaler_, out, nullptr); });
  check_input(state_of(scaler_), [&](auto *in) { return gsc_scaler_set_state(scaler_, in, nullptr); });
}

TEST_F(StructSize, ScalerOptions) {
  check_output<gsc_scaler_options>([&](auto *out) { return gsc_scaler_get_options(scaler_, out); });
  const gsc_scaler_options options = GSC_SCALER_OPTIONS_INIT;
  check_input(options, [&](auto *in) { return gsc_scaler_set_options(scaler_, in, nullptr); });
  check_creation(options, gsc_scaler_destroy,
                 [&](auto *in, auto **out) { return gsc_scaler_create(context_, in, out); });
}

TEST_F(StructSize, OptimizerOptions) {
  check_output<gsc_optimizer_options>([&](auto *out) { return gsc_optimizer_get_options(trainer_, 0, out); });
  const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
  check_input(options, [&](auto *in) { return gsc_optimizer_set_options(trainer_, 0, in, nullptr); });
  check_creation(options, gsc_optimizer_destroy, [&](auto *in, auto **out) {
    Buffer param(GSC_FP32, 4), grad(GSC_FP32, 4);
    return gsc_optimizer_create(context_, in, make_list(context_, param), make_list(context_, grad), nullptr, nullptr,
                                0, out);
  });
  // Last: the one call that succeeds uses the tensor up.
  check_input(options, [&](auto *in) { return gsc_optimizer_add_group(trainer_, 0, 1, in, nullptr); });
}

TEST_F(StructSize, ContextOptions) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.num_threads = 1;
  check_creation(options, gsc_context_destroy, gsc_context_create);
}

TEST_F(StructSize, Reducer) {
  const auto reduce = [](void *, double *, int64_t, gsc_stream) -> int32_t { return 0; };
  const gsc_reducer reducer = {sizeof(gsc_reducer), 0, reduce, nullptr};
  check_input(reducer, [&](auto *in) { return gsc_scaler_set_reducer(scaler_, in); });
}

}  // namespace
}  // namespace gsc_test
