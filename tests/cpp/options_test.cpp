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

/// Another number in every field but those that callers leave alone.
template <typename Struct>
Struct distinct() {
  Struct result;
  uint32_t words[sizeof result / sizeof(uint32_t)];
  for (uint32_t i = 0; i < std::size(words); ++i) words[i] = i + 1;
  std::memcpy(&result, words, sizeof result);
  result.struct_size = sizeof result;
  if constexpr (requires { result.reserved; }) result.reserved = 0;
  return result;
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
  auto given = distinct<gsc_scaler_options>();
  given.enabled = 0;
  EXPECT_TRUE(same_bytes(ScalerOptions::from_c(given).to_c(), given));
  EXPECT_EQ((ScalerOptions{.init_scale = 3.0f}.to_c().init_scale), 3.0f);
}

TEST(ScalerOptions, EveryPresetIsTheCPreset) {
  gsc_scaler_options c;
  for (int32_t i = GSC_PRESET_TORCH; gsc_scaler_options_init(&c, sizeof c, i) == GSC_OK; ++i) {
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
  const auto given = distinct<gsc_optimizer_options>();
  EXPECT_TRUE(same_bytes(OptimizerOptions::from_c(given).to_c(), given));
  EXPECT_EQ((OptimizerOptions{.lr = 3.0}.to_c().lr), 3.0);
}

TEST(OptimizerOptions, UnknownKindThrows) {
  EXPECT_THROW(OptimizerOptions{.kind = static_cast<OptimizerKind>(99)}.to_c(), Error);
}

}  // namespace
}  // namespace gradscaler
