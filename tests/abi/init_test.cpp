// SPDX-License-Identifier: Apache-2.0
//
// Option structs: INIT macros against init functions byte for byte, and the defaults of every kind. struct_size_test.cpp
// has what init functions do with a size; what the presets mean is tested elsewhere.
#include <type_traits>

#include "tests/support/kinds.h"
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

TEST(InitKinds, EveryKindHasTheDefaultsOfTheTable) {
  ASSERT_EQ(optimizer_kinds().size(), std::size(gsc::kKinds));
  for (const int32_t kind : optimizer_kinds()) {
    SCOPED_TRACE(kind);
    const auto o = initialized(0, gsc_optimizer_options_init, kind);
    EXPECT_TRUE(same_bytes(o, initialized(kFill, gsc_optimizer_options_init, kind))) << "a byte is not written";
    gsc_optimizer_options expected{};
    expected.struct_size = sizeof expected;
    expected.kind = kind;
#define GSC_EXPECTED(field, range)    \
  if (uses(kind, gsc::Option::field)) \
    expected.field = static_cast<decltype(o.field)>(kind_of(kind).find(gsc::Option::field)->value);
    GSC_OPTIMIZER_RANGES(GSC_EXPECTED)
#undef GSC_EXPECTED
    EXPECT_TRUE(same_bytes(o, expected));
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
