// SPDX-License-Identifier: Apache-2.0
//
// Option structs of the C++ layer: their defaults are the library's, every field arrives in the C struct, and they
// survive the way back.
#include <gtest/gtest.h>

#include <cstring>
#include <gradscaler/gradscaler.hpp>

namespace gradscaler {
namespace {

// C structs of this library have no padding.
template <typename Struct>
bool same_bytes(const Struct &a, const Struct &b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

void parallel(void *, int32_t, gsc_task_fn, void *) {}
void *allocate(void *, int64_t, int64_t) { return nullptr; }
void release(void *, void *, int64_t, int64_t) {}
void log(void *, int32_t, const char *) {}

TEST(ContextOptions, DefaultsAreTheLibrarys) {
  const gsc_context_options c = GSC_CONTEXT_OPTIONS_INIT;
  EXPECT_TRUE(same_bytes(ContextOptions{}.to_c(), c));
}

TEST(ContextOptions, EveryFieldArrives) {
  int users[4];
  const ContextOptions options = {.flags = 1,
                                  .device_type = DeviceType::cuda,
                                  .device_index = 2,
                                  .num_threads = 3,
                                  .cpu_target = CpuTarget::avx2,
                                  .parallel_for = parallel,
                                  .parallel_for_user = &users[0],
                                  .allocate = allocate,
                                  .release = release,
                                  .allocator_user = &users[1],
                                  .log = log,
                                  .log_user = &users[2],
                                  .device_pool = &users[3]};
  const gsc_context_options expected = {sizeof(gsc_context_options),
                                        1,
                                        GSC_DEVICE_CUDA,
                                        2,
                                        3,
                                        GSC_CPU_AVX2,
                                        parallel,
                                        &users[0],
                                        allocate,
                                        release,
                                        &users[1],
                                        log,
                                        &users[2],
                                        &users[3]};
  EXPECT_TRUE(same_bytes(options.to_c(), expected));
}

TEST(ScalerOptions, DefaultsAreTheLibrarys) {
  const gsc_scaler_options c = GSC_SCALER_OPTIONS_INIT;
  EXPECT_TRUE(same_bytes(ScalerOptions{}.to_c(), c));
  EXPECT_TRUE(same_bytes(ScalerOptions::preset(Preset::torch).to_c(), c));
}

TEST(ScalerOptions, EveryFieldArrivesAndReturns) {
  const ScalerOptions options = {.flags = GSC_SCALER_GROW_ON_EQUAL | GSC_SCALER_FLOOR_EXCLUSIVE,
                                 .init_scale = 3.0f,
                                 .min_scale = 0.25f,
                                 .max_scale = 1024.0f,
                                 .growth_interval = 7,
                                 .growth_factor = 4.0,
                                 .backoff_factor = 0.75,
                                 .enabled = false,
                                 .hysteresis = 5,
                                 .hysteresis_refill = HysteresisRefill::consecutive,
                                 .growth_timing = GrowthTiming::first_one_later,
                                 .overflow_tolerance = 0.125,
                                 .recovery_threshold = 2.0f,
                                 .recovery_interval = 6,
                                 .floor_action = FloorAction::error,
                                 .floor_patience = 8,
                                 .history_capacity = 9};
  const gsc_scaler_options expected = {sizeof(gsc_scaler_options),
                                       GSC_SCALER_GROW_ON_EQUAL | GSC_SCALER_FLOOR_EXCLUSIVE,
                                       3.0f,
                                       0.25f,
                                       1024.0f,
                                       7,
                                       4.0,
                                       0.75,
                                       0,
                                       5,
                                       GSC_REFILL_CONSECUTIVE,
                                       GSC_GROWTH_FIRST_ONE_LATER,
                                       0.125,
                                       2.0f,
                                       6,
                                       GSC_FLOOR_ERROR,
                                       8,
                                       9,
                                       0};
  EXPECT_TRUE(same_bytes(options.to_c(), expected));
  EXPECT_TRUE(same_bytes(ScalerOptions::from_c(expected).to_c(), expected));
}

TEST(ScalerOptions, EveryPresetIsTheCPreset) {
  for (int32_t i = GSC_PRESET_TORCH; i <= GSC_PRESET_COLOSSALAI; ++i) {
    gsc_scaler_options c;
    ASSERT_EQ(gsc_scaler_options_init(&c, sizeof c, i), GSC_OK);
    EXPECT_TRUE(same_bytes(ScalerOptions::preset(static_cast<Preset>(i)).to_c(), c)) << i;
  }
}

TEST(ScalerOptions, UnknownPresetThrows) { EXPECT_THROW(ScalerOptions::preset(static_cast<Preset>(99)), Error); }

TEST(OptimizerOptions, DefaultsAreThoseOfTheKind) {
  gsc_optimizer_options c;
  for (int32_t kind = GSC_SGD; gsc_optimizer_options_init(&c, sizeof c, kind) == GSC_OK; ++kind) {
    EXPECT_TRUE(same_bytes(OptimizerOptions{.kind = static_cast<OptimizerKind>(kind)}.to_c(), c)) << kind;
  }
  EXPECT_EQ(OptimizerOptions{}.to_c().kind, GSC_ADAMW);
}

TEST(OptimizerOptions, EveryFieldArrivesAndReturns) {
  const OptimizerOptions options = {.kind = OptimizerKind::adam,
                                    .flags = GSC_OPTIMIZER_AMSGRAD,
                                    .state_format = StateFormat::bits8,
                                    .lr = 1.0,
                                    .beta1 = 0.5,
                                    .beta2 = 0.25,
                                    .eps = 0.125,
                                    .weight_decay = 2.0,
                                    .momentum = 3.0,
                                    .dampening = 4.0,
                                    .lr_decay = 5.0,
                                    .initial_accumulator_value = 6.0,
                                    .seed = 7,
                                    .master_format = MasterFormat::split8,
                                    .alpha = 0.75,
                                    .rho = 0.625,
                                    .momentum_decay = 8.0,
                                    .eps_root = 9.0,
                                    .beta3 = 0.375,
                                    .warmup_steps = 10,
                                    .beta3_warmup = 11,
                                    .weight_step_power = 12.0,
                                    .weight_lr_power = 13.0,
                                    .trust_coefficient = 14.0,
                                    .ema_decay = 0.875};
  const gsc_optimizer_options expected = {sizeof(gsc_optimizer_options),
                                          GSC_OPTIMIZER_AMSGRAD,
                                          GSC_ADAM,
                                          GSC_STATE_BITS8,
                                          1.0,
                                          0.5,
                                          0.25,
                                          0.125,
                                          2.0,
                                          3.0,
                                          4.0,
                                          5.0,
                                          6.0,
                                          7,
                                          GSC_MASTER_SPLIT8,
                                          0,
                                          0.75,
                                          0.625,
                                          8.0,
                                          9.0,
                                          0.375,
                                          10,
                                          11,
                                          12.0,
                                          13.0,
                                          14.0,
                                          0.875};
  EXPECT_TRUE(same_bytes(options.to_c(), expected));
  EXPECT_TRUE(same_bytes(OptimizerOptions::from_c(expected).to_c(), expected));
}

TEST(OptimizerOptions, UnknownKindThrows) {
  EXPECT_THROW(OptimizerOptions{.kind = static_cast<OptimizerKind>(99)}.to_c(), Error);
}

}  // namespace
}  // namespace gradscaler
