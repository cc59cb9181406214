// SPDX-License-Identifier: Apache-2.0
//
// Every struct with struct_size at the sizes that older and newer programs have: what is read of it, what is written and
// no byte more, and which sizes are refused. version_test.c has whole programs; what the fields mean is tested elsewhere.
#include <array>
#include <type_traits>

#include "gradscaler/vulkan.h"
#include "tests/support/kinds.h"
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

constexpr unsigned char kFill = 0xa5;

/// A field that sizes may not end in; others end at every multiple of 8.
template <typename Struct>
bool cuts_the_name(uint32_t) {
  return false;
}
template <>
bool cuts_the_name<gsc_device_info>(uint32_t size) {
  return size > offsetof(gsc_device_info, name) && size < sizeof(gsc_device_info);
}

template <typename Struct>
std::vector<uint32_t> good_sizes() {
  std::vector<uint32_t> sizes;
  for (uint32_t size = 16; size <= sizeof(Struct) + 16; size += 8) {
    if (!cuts_the_name<Struct>(size)) sizes.push_back(size);
  }
  sizes.push_back(4096);
  return sizes;
}

template <typename Struct>
std::vector<uint32_t> bad_sizes() {
  const uint32_t size = sizeof(Struct);
  std::vector<uint32_t> sizes = {0, 3, 8, 12, 20, size - 4, size - 1, size + 1, size + 4, 4100, 4104, UINT32_MAX};
  for (uint32_t cut = 16; cut < size; cut += 8) {
    if (cuts_the_name<Struct>(cut)) sizes.push_back(cut);
  }
  return sizes;
}

/// A program's struct of `size` bytes, at the end of its memory, where a sanitizer sees each byte beyond, or before bytes
/// of kFill. Begins as the library's struct; more bytes are 0.
template <typename Struct>
class Sized {
 public:
  Sized(uint32_t size, size_t after, const Struct &begin) : bytes_(std::max<size_t>(size, 16) + after, kFill) {
    const auto *from = reinterpret_cast<const unsigned char *>(&begin);
    for (size_t i = 0; i < bytes_.size() - after; ++i) bytes_[i] = i < sizeof begin ? from[i] : 0;
    std::memcpy(bytes_.data(), &size, sizeof size);
  }
  Struct *get() { return reinterpret_cast<Struct *>(bytes_.data()); }
  unsigned char &operator[](size_t i) { return bytes_[i]; }
  const std::vector<unsigned char> &bytes() const { return bytes_; }

 private:
  std::vector<unsigned char> bytes_;
};

constexpr size_t kAfter[] = {0, 64};

class StructSize : public ::testing::Test {
 protected:
  StructSize() { EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler_, trainer_, nullptr)); }

  static std::string refusal(uint32_t bad, size_t size) {
    return text("struct_size is ", bad, "; set it to the sizeof of the struct, which has ", size,
                " bytes in this version of the library");
  }

  /// Of a function that fills in a Struct: as much as fits of what it writes at the library's size, then zeros.
  template <typename Struct, typename Fill>
  void check_output(const Fill &fill) {
    Struct empty;
    std::memset(&empty, kFill, sizeof empty);
    Sized<Struct> whole(sizeof(Struct), 0, empty);
    ASSERT_GSC_OK(fill(whole.get()));
    for (const size_t after : kAfter) {
      for (const uint32_t size : good_sizes<Struct>()) {
        SCOPED_TRACE(text("struct_size ", size));
        Sized<Struct> out(size, after, empty);
        for (size_t i = sizeof(Struct); i < size; ++i) out[i] = kFill;
        ASSERT_GSC_OK(fill(out.get()));
        EXPECT_EQ(out.get()->struct_size, size) << "it is the caller's";
        for (size_t i = 4; i < size; ++i) ASSERT_EQ(out[i], i < sizeof(Struct) ? whole[i] : 0) << "byte " << i;
        for (size_t i = size; i < size + after; ++i) ASSERT_EQ(out[i], kFill) << "byte " << i << " beyond the struct";
      }
    }
    for (const uint32_t bad : bad_sizes<Struct>()) {
      Sized<Struct> out(bad <= 4104 ? bad : 4104, 0, empty);
      out.get()->struct_size = bad;
      const auto before = out.bytes();
      EXPECT_INVALID(fill(out.get()), refusal(bad, sizeof(Struct)).c_str());
      EXPECT_EQ(out.bytes(), before);
    }
    EXPECT_EQ(fill(static_cast<Struct *>(nullptr)), GSC_ERROR_INVALID_ARGUMENT);
  }

  /// Of a function that takes a Struct, called `name`. `take` is given it at each good size with what it has to be taken
  /// for: `good`, as far as its program knows it, then `defaults`. A field that only the program knows must be 0.
  template <typename Struct, typename Call, typename Take>
  void check_input(const char *name, Struct good, const Struct &defaults, const Call &call, const Take &take) {
    good.struct_size = sizeof good;
    for (const size_t after : kAfter) {
      for (const uint32_t size : good_sizes<Struct>()) {
        SCOPED_TRACE(text("struct_size ", size));
        Sized<Struct> in(size, after, good);
        Struct expected = defaults;
        std::memcpy(&expected, &good, std::min<size_t>(size, sizeof good));
        take(in.get(), expected);
        for (const size_t later : {sizeof(Struct), size_t{size} - 1}) {
          if (later >= size || later < sizeof(Struct)) continue;
          in[later] = 1;
          const std::string why =
              text(": ", name, " has ", size, " bytes, of which byte ", later,
                   " is not 0: ", "the program sets a field that this version of the library does not know");
          EXPECT_GSC_ERROR(call(in.get()), GSC_ERROR_UNSUPPORTED, why.c_str());
          in[later] = 0;
        }
      }
    }
    for (const uint32_t bad : bad_sizes<Struct>()) {
      Sized<Struct> in(bad <= 4104 ? bad : 4104, 0, good);
      in.get()->struct_size = bad;
      EXPECT_INVALID(call(in.get()), text(": ", name, '.', refusal(bad, sizeof(Struct))).c_str());
    }
  }

  /// With a getter that tells what was taken.
  template <typename Struct, typename Call, typename Get>
  void check_setter(const char *name, const Struct &good, const Struct &defaults, const Call &call, const Get &get) {
    check_input(name, good, defaults, call, [&](const Struct *in, const Struct &expected) {
      ASSERT_GSC_OK(call(in));
      EXPECT_TRUE(same_bytes(get(), expected));
    });
  }

  Context context_ = make_context();
  Trainer trainer_{context_, {.options = optimizer_options(GSC_ADAMW), .counts = std::vector<int64_t>(100, 1)}};
  Scaler scaler_ = make_scaler(context_, scaler_options());
};

// They take the size as an argument, which check_output leaves in the struct.
template <typename Struct, typename... Kind>
auto with_the_size_in(gsc_status (*init)(Struct *, uint32_t, Kind...), std::type_identity_t<Kind>... kind) {
  return [=](Struct *out) { return init(out, out != nullptr ? out->struct_size : sizeof *out, kind...); };
}

/// What a callback has seen.
struct Called {
  int calls = 0;
  void *user = nullptr;
};

gsc_scaler_options options_of(const gsc_scaler *scaler) {
  auto options = with_size<gsc_scaler_options>();
  EXPECT_GSC_OK(gsc_scaler_get_options(scaler, &options));
  return options;
}

gsc_optimizer_options options_of(const gsc_optimizer *optimizer, int32_t group = 0) {
  auto options = with_size<gsc_optimizer_options>();
  EXPECT_GSC_OK(gsc_optimizer_get_options(optimizer, group, &options));
  return options;
}

TEST_F(StructSize, OfInitFunctions) {
  check_output<gsc_context_options>(with_the_size_in(gsc_context_options_init));
  check_output<gsc_scaler_options>(with_the_size_in(gsc_scaler_options_init, GSC_PRESET_TORCH));
  check_output<gsc_scaler_options>(with_the_size_in(gsc_scaler_options_init, GSC_PRESET_MEGATRON));
  check_output<gsc_optimizer_options>(with_the_size_in(gsc_optimizer_options_init, GSC_LION));
}

/// The argument is the size. The struct_size in the struct is not read.
TEST_F(StructSize, OfInitFunctionsIsTheArgument) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.struct_size = 3;
  EXPECT_GSC_OK(gsc_context_options_init(&options, sizeof options));
  EXPECT_EQ(options.struct_size, sizeof options);
}

TEST_F(StructSize, LastError) {
  EXPECT_INVALID(gsc_scaler_set_scale(scaler_, 0.0F, nullptr), "scale");
  check_output<gsc_error>([](auto *out) { return gsc_error_get_last(out); });
}

TEST_F(StructSize, DeviceInfo) {
  check_output<gsc_device_info>([](auto *out) { return gsc_device_get_info(GSC_DEVICE_CPU, 0, out); });
}

TEST_F(StructSize, Report) {
  check_output<gsc_report>([&](auto *out) { return gsc_scaler_get_report_sync(scaler_, nullptr, out, nullptr); });
}

/// With the floor as an error the report is filled in all the same.
TEST_F(StructSize, ReportAtTheFloor) {
  gsc_scaler_options options = GSC_SCALER_OPTIONS_INIT;
  options.min_scale = options.init_scale;
  options.floor_action = GSC_FLOOR_ERROR;
  const Scaler scaler = make_scaler(context_, options);
  trainer_.fill_grads(kInf);
  EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler, trainer_, nullptr));
  Sized<gsc_report> out(16, 64, with_size<gsc_report>());
  EXPECT_EQ(gsc_scaler_get_report_sync(scaler, nullptr, out.get(), nullptr), GSC_ERROR_SCALE_FLOOR);
  EXPECT_EQ(out.get()->scale, options.init_scale);
  for (size_t i = 16; i < out.bytes().size(); ++i) ASSERT_EQ(out[i], kFill) << "byte " << i;
}

TEST_F(StructSize, ReportAsync) {
  check_output<gsc_report>([&](auto *out) { return gsc_scaler_read_report_async(scaler_, nullptr, out, nullptr); });
  check_output<gsc_report>(
      [&](auto *out) { return gsc_scaler_read_report_async(scaler_, trainer_.grad_list(), out, nullptr); });
}

TEST_F(StructSize, DeviceState) {
  check_output<gsc_device_state>([&](auto *out) { return gsc_scaler_get_device_state(scaler_, nullptr, out); });
  check_output<gsc_device_state>(
      [&](auto *out) { return gsc_scaler_get_device_state(scaler_, trainer_.grad_list(), out); });
}

TEST_F(StructSize, ScalerState) {
  check_output<gsc_scaler_state>([&](auto *out) { return gsc_scaler_get_state_sync(scaler_, out, nullptr); });
  gsc_scaler_state good = state_of(scaler_);
  good.growth_tracker = 7;
  good.updates = 9;
  good.skipped = 5;
  const auto call = [&](auto *in) { return gsc_scaler_set_state(scaler_, in, nullptr); };
  check_input("state", good, with_size<gsc_scaler_state>(), call, [&](auto *in, const auto &expected) {
    if (expected.growth_interval == 0) {  // no version lacks it; 0 is refused by its own name
      EXPECT_INVALID(call(in), "state.growth_interval");
    } else {
      ASSERT_GSC_OK(call(in));
      EXPECT_TRUE(same_bytes(state_of(scaler_), expected));
    }
  });
}

TEST_F(StructSize, ScalerOptions) {
  check_output<gsc_scaler_options>([&](auto *out) { return gsc_scaler_get_options(scaler_, out); });
  const gsc_scaler_options defaults = GSC_SCALER_OPTIONS_INIT;
  gsc_scaler_options good = defaults;
  good.flags = GSC_SCALER_FP32_PRODUCTS;
  good.min_scale = 2.0F;
  good.growth_interval = 3;
  good.growth_factor = 4.0;
  good.backoff_factor = 0.25;
  good.hysteresis = 2;
  good.growth_timing = GSC_GROWTH_ONE_LATER;
  good.overflow_tolerance = 0.5;
  good.recovery_threshold = 8.0F;
  good.recovery_interval = 5;
  good.floor_action = GSC_FLOOR_REPORT;
  good.floor_patience = 6;
  check_setter(
      "options", good, defaults, [&](auto *in) { return gsc_scaler_set_options(scaler_, in, nullptr); },
      [&] { return options_of(scaler_); });
  good.init_scale = 1024.0F;
  good.history_capacity = 5;
  gsc_scaler *made = nullptr;
  check_setter(
      "options", good, defaults,
      [&](auto *in) {
        gsc_scaler_destroy(std::exchange(made, nullptr));
        return gsc_scaler_create(context_, in, &made);
      },
      [&] { return options_of(made); });
  EXPECT_EQ(made, nullptr) << "refused calls make nothing";
}

TEST_F(StructSize, OptimizerOptions) {
  check_output<gsc_optimizer_options>([&](auto *out) { return gsc_optimizer_get_options(trainer_, 0, out); });
  gsc_optimizer_options good = optimizer_options(GSC_ADAMW);
  good.lr = 0.5;
  good.beta1 = 0.25;
  good.beta2 = 0.125;
  good.eps = 0.0625;
  good.weight_decay = 0.75;
  check_setter(
      "options", good, optimizer_options(GSC_ADAMW),
      [&](auto *in) { return gsc_optimizer_set_options(trainer_, 0, in, nullptr); },
      [&] { return options_of(trainer_.get()); });
  int32_t group = 0;  // the number of the last one, too
  check_setter(
      "options", good, optimizer_options(GSC_ADAMW),
      [&](auto *in) { return gsc_optimizer_add_group(trainer_, group, 1, in, &group); },
      [&] { return options_of(trainer_.get(), group); });
}

/// The defaults are those of the kind, which every size has.
TEST_F(StructSize, OptimizerOptionsOfNewOptimizers) {
  Buffer param(GSC_FP32, 4), grad(GSC_FP32, 4);
  const List params = make_list(context_, param), grads = make_list(context_, grad);
  for (const int32_t kind : optimizer_kinds()) {
    SCOPED_TRACE(kind);
    const gsc_optimizer_options defaults = optimizer_options(kind);
    gsc_optimizer_options good = defaults;
    good.seed = 3;
    good.ema_decay = 0.5;
#define GSC_SET_IF_USED(field, range) \
  if (uses(kind, gsc::Option::field)) good.field = static_cast<decltype(good.field)>(1 - 0.375);
    GSC_OPTIMIZER_RANGES(GSC_SET_IF_USED)
#undef GSC_SET_IF_USED
    gsc_optimizer *made = nullptr;
    check_setter(
        "options", good, defaults,
        [&](auto *in) {
          gsc_optimizer_destroy(std::exchange(made, nullptr));
          return gsc_optimizer_create(context_, in, params, grads, nullptr, nullptr, 0, &made);
        },
        [&] { return options_of(made); });
    EXPECT_EQ(made, nullptr) << "refused calls make nothing";
  }
}

TEST_F(StructSize, OptimizerOptionsOfAnUnknownKind) {
  gsc_optimizer_options options = optimizer_options(GSC_SGD);
  options.kind = 99;
  options.struct_size = 16;
  EXPECT_INVALID(gsc_optimizer_set_options(trainer_, 0, &options, nullptr), "options.kind is 99");
}

TEST_F(StructSize, ContextOptions) {
  static Called logged;
  int user = 0;
  gsc_context_options good = GSC_CONTEXT_OPTIONS_INIT;
  good.num_threads = 3;
  good.log = [](void *given, int32_t, const char *) { logged = {logged.calls + 1, given}; };
  good.log_user = &user;
  gsc_context *made = nullptr;
  const auto call = [&](auto *in) {
    logged = {};
    gsc_context_destroy(std::exchange(made, nullptr));
    return gsc_context_create(in, &made);
  };
  const gsc_context_options defaults = GSC_CONTEXT_OPTIONS_INIT;
  check_input("options", good, defaults, call, [&](auto *in, const auto &expected) {
    ASSERT_GSC_OK(call(in));
    int32_t threads = 0;
    EXPECT_GSC_OK(gsc_context_get_cpu(made, nullptr, &threads));
    EXPECT_TRUE(threads == expected.num_threads || expected.num_threads == 0) << threads;
    EXPECT_EQ(logged.calls > 0, expected.log != nullptr);
    EXPECT_EQ(logged.user, expected.log_user);
  });
  EXPECT_EQ(made, nullptr) << "refused calls make nothing";
}

TEST_F(StructSize, Reducer) {
  static Called reduced;
  int user = 0;
  const auto reduce = [](void *given, double *, int64_t, gsc_stream) -> int32_t {
    reduced = {reduced.calls + 1, given};
    return 0;
  };
  const gsc_reducer good = {sizeof(gsc_reducer), 0, reduce, &user};
  const auto call = [&](auto *in) { return gsc_scaler_set_reducer(scaler_, in); };
  check_input("reducer", good, with_size<gsc_reducer>(), call, [&](auto *in, const auto &expected) {
    ASSERT_GSC_OK(call(in));
    reduced = {};
    EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler_, trainer_, nullptr));
    EXPECT_EQ(reduced.calls, 1);
    EXPECT_EQ(reduced.user, expected.user);
  });
}

/// Of an experiment. Without Vulkan in the build the struct is read, and then it cannot be opened.
TEST_F(StructSize, VulkanDevice) {
  const auto call = [&](auto *in) {
    return status_of(gsc_context_destroy,
                     [&](gsc_context **out) { return gscx_context_create_vulkan(nullptr, in, out); });
  };
  const auto good = with_size<gscx_vulkan_device>();
  check_input("device", good, good, call, [&](auto *in, const auto &) {
    const gsc_status status = call(in);
    EXPECT_TRUE(status == GSC_ERROR_UNAVAILABLE || status == GSC_ERROR_INVALID_ARGUMENT) << status;
    EXPECT_EQ(std::strstr(gsc_error_get_message(), "struct_size"), nullptr) << gsc_error_get_message();
  });
}

}  // namespace
}  // namespace gsc_test
