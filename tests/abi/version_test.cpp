// SPDX-License-Identifier: Apache-2.0
//
// version_test.c for the C++ layer, which is compiled into programs: that of another version trains with this library.
// In a struct that the library fills in, a field that the library does not know reads 0.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <gradscaler/gradscaler.hpp>
#include <vector>

namespace gs = gradscaler;

namespace {

void check(bool condition, const char *what) {
  if (condition) return;
  std::fprintf(stderr, "%s is false\n", what);
  std::exit(1);
}
#define CHECK(condition) check(condition, #condition)

template <typename Struct>
void check_later(const Struct &s) {
  CHECK(s.struct_size == sizeof s);
  if constexpr (requires { s.later; }) CHECK(s.later == 0);
}

}  // namespace

int main() try {
  check_later(gs::device_get_info(gs::DeviceType::cpu));
  std::vector<float> weights(8), gradients(8);
  gs::Context context({.num_threads = 1});
  gs::TensorList params(context, {gs::tensor(weights)}), grads(context, {gs::tensor(gradients)});
  gs::Optimizer adamw(context, {.lr = 0.1}, params, grads);
  gs::GradScaler scaler(context, {.init_scale = 1024.0f});
  scaler.set_reducer([](void *, double *, int64_t, gsc_stream) -> int32_t { return 0; });
  for (int step = 0; step < 60; ++step) {
    for (std::size_t i = 0; i < weights.size(); ++i) gradients[i] = (weights[i] - 3.0f) * scaler.get_scale_sync();
    scaler.step(adamw);
    scaler.update();
  }
  for (const float weight : weights) CHECK(weight > 2.0f && weight < 4.0f);

  const gsc_report report = scaler.get_report_sync(grads);
  check_later(report);
  CHECK(report.updates == 60 && report.skipped == 0);
  gsc_report again{};
  std::memset(static_cast<void *>(&again), 0x5a, sizeof again);
  scaler.read_report_async(again, grads);
  CHECK(std::memcmp(&report, &again, sizeof report) == 0);

  const gsc_scaler_state state = scaler.get_state_sync();
  check_later(state);
  scaler.set_scale(2.0f);
  scaler.set_state(state);
  CHECK(scaler.get_scale_sync() == 1024.0f);
  check_later(scaler.get_device_state());
  gs::OptimizerOptions options = adamw.get_options();
  options.lr = 0.5;
  adamw.set_options(0, options);
  CHECK(adamw.get_options().lr == 0.5);
  scaler.set_options(scaler.get_options());
  try {
    scaler.set_scale(0.0f);
    CHECK(false);
  } catch (const gs::Error &error) {
    check_later(error.details());
    CHECK(std::strcmp(error.details().argument, "scale") == 0);
  }
  return 0;
} catch (const gs::Error &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
