// SPDX-License-Identifier: Apache-2.0
//
// Option structs: INIT macros against init functions byte for byte, and the defaults of every kind. struct_size_test.cpp
// has what init functions do with a size; what the presets mean is tested elsewhere.
#include <type_traits>

#include "tests/support/objects.h"

namespace gsc_test {
namespace {

constexpr unsigned char kFill = 0xa5;

/// What `init` writes over bytes of `fill`.
template <typename Options, typename... Kind>
Options initialized(int fill, gsc_status (*init)(Options *, uint32_t, Kind...), std::type_identity_t<Kind>... kind) {
  Options o;
  std::memset(&o, fill, sizeof o);
  EXPECT_EQ(init(&o, sizeof o, kind...), GSC_OK);
  return o;
}

TEST(InitMacro, ContextEqualsFunction) {
  EXPECT_TRUE(same_bytes<gsc_context_options>(GSC_CONTEXT_OPTIONS_INIT, initialized(kFill, gsc_context_options_init)));
}

TEST(InitMacro, ScalerEqualsTorchPreset) {
  EXPECT_TRUE(same_bytes<gsc_scaler_options>(GSC_SCALER_OPTIONS_INIT,
                                             initialized(kFill, gsc_scaler_options_init, GSC_PRESET_TORCH)));
}

#define EXPECT_FIELD(field) EXPECT_EQ(o.field, expected.field)
#define EXPECT_FIELD_IF_USED(field) EXPECT_TRUE(expected.field == 0 || o.field == expected.field)

TEST(InitKinds, EveryKindKnowsItsDefaults) {
  struct Expected {
    int32_t kind;
    double lr, beta1, beta2, eps, weight_decay, alpha = 0, rho = 0, momentum_decay = 0, eps_root = 0, beta3 = 0,
                                                momentum = 0, weight_lr_power = 0, trust_coefficient = 0;
  };
  // As the comments of gsc_optimizer_options say; 0 for a hyper-parameter the kind does not use is not checked.
  const Expected all[] = {
      {GSC_SGD, 1e-3, 0, 0, 0, 0},
      {GSC_ADAM, 1e-3, 0.9, 0.999, 1e-8, 0},
      {GSC_ADAMW, 1e-3, 0.9, 0.999, 1e-8, 1e-2},
      {GSC_ADAGRAD, 1e-2, 0, 0, 1e-10, 0},
      {GSC_LION, 1e-4, 0.9, 0.99, 0, 0},
      {GSC_LAMB, 1e-3, 0.9, 0.999, 1e-6, 1e-2},
      {GSC_RMSPROP, 1e-2, 0, 0, 1e-8, 0, 0.99},
      {GSC_ADADELTA, 1.0, 0, 0, 1e-6, 0, 0, 0.9},
      {GSC_ADAMAX, 2e-3, 0.9, 0.999, 1e-8, 0},
      {GSC_NADAM, 2e-3, 0.9, 0.999, 1e-8, 0, 0, 0, 4e-3},
      {GSC_RADAM, 1e-3, 0.9, 0.999, 1e-8, 0},
      {GSC_ADABELIEF, 1e-3, 0.9, 0.999, 1e-16, 0, 0, 0, 0, 1e-16},
      {GSC_ADEMAMIX, 1e-3, 0.9, 0.999, 1e-8, 1e-2, 5, 0, 0, 0, 0.9999},
      {GSC_ADAMW_SCHEDULE_FREE, 2.5e-3, 0.9, 0.999, 1e-8, 0, 0, 0, 0, 0, 0, 0, 2},
      {GSC_SGD_SCHEDULE_FREE, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.9, 2},
      {GSC_LARS, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.9, 0, 1e-3},
      {GSC_NOVOGRAD, 1e-2, 0.95, 0.98, 1e-8, 0},
  };
  std::vector<int32_t> known;
  for (const Expected &expected : all) known.push_back(expected.kind);
  EXPECT_EQ(known, optimizer_kinds()) << "a kind of the library has no row";
  for (const Expected &expected : all) {
    SCOPED_TRACE(expected.kind);
    const auto o = initialized(0, gsc_optimizer_options_init, expected.kind);
    EXPECT_TRUE(same_bytes(o, initialized(kFill, gsc_optimizer_options_init, expected.kind)))
        << "a byte is not written";
    EXPECT_FIELD(kind);
    EXPECT_EQ(o.flags, 0u);
    EXPECT_EQ(o.state_format, GSC_STATE_FULL);
    EXPECT_EQ(o.master_format, GSC_MASTER_NONE);
    EXPECT_EQ(o.seed, 0);
    EXPECT_FIELD(lr);
    EXPECT_FIELD_IF_USED(beta1);
    EXPECT_FIELD_IF_USED(beta2);
    EXPECT_FIELD_IF_USED(eps);
    EXPECT_FIELD(weight_decay);
    EXPECT_FIELD(momentum);
    EXPECT_EQ(o.dampening, 0.0);
    EXPECT_EQ(o.lr_decay, 0.0);
    EXPECT_EQ(o.initial_accumulator_value, 0.0);
    EXPECT_FIELD(alpha);
    EXPECT_FIELD(rho);
    EXPECT_FIELD(momentum_decay);
    EXPECT_FIELD(eps_root);
    EXPECT_FIELD(beta3);
    EXPECT_FIELD(weight_lr_power);
    EXPECT_FIELD(trust_coefficient);
  }
}

template <typename Options>
void expect_refused(gsc_status (*init)(Options *, uint32_t, int32_t), int32_t count, const char *word) {
  for (const int32_t bad : {-1, count, 1000, INT32_MIN, INT32_MAX}) {
    SCOPED_TRACE(bad);
    Options o;
    std::memset(&o, kFill, sizeof o);
    const Options before = o;
    EXPECT_INVALID(init(&o, sizeof o, bad), word);
    EXPECT_TRUE(same_bytes(o, before));
  }
}

TEST(InitKinds, UnknownKindOrPresetIsRefused) {
  expect_refused(gsc_optimizer_options_init, static_cast<int32_t>(optimizer_kinds().size()), ": kind is ");
  expect_refused(gsc_scaler_options_init, static_cast<int32_t>(scaler_presets().size()), ": preset is ");
}

}  // namespace
}  // namespace gsc_test
