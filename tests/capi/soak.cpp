// SPDX-License-Identifier: Apache-2.0
//
// Long use: objects made and destroyed, steps with random faults in the gradients whose scale follows a model step by
// step, on several threads that share a context. Memory, threads and file descriptors must not grow.
// Usage: soak <cycles> <steps> <threads>, each number over all threads together.
#include <dirent.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#include "gradscaler/gradscaler.h"

namespace {

#define CHECK(condition)                                                                                         \
  do {                                                                                                           \
    if (!(condition)) {                                                                                          \
      std::fprintf(stderr, "%s:%d: %s is false; %s\n", __FILE__, __LINE__, #condition, gsc_error_get_message()); \
      std::exit(1);                                                                                              \
    }                                                                                                            \
  } while (0)

struct Usage {
  long resident_kib = 0, handles = 0, threads = 0;
};

long entries(const char *path) {
  long count = 0;
  DIR *directory = opendir(path);
  if (directory == nullptr) return 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

Usage usage() {
  Usage result;
  long total = 0, resident = 0;
  if (std::FILE *file = std::fopen("/proc/self/statm", "r"); file != nullptr) {
    CHECK(std::fscanf(file, "%ld %ld", &total, &resident) == 2);
    std::fclose(file);
  }
  result.resident_kib = resident * (sysconf(_SC_PAGESIZE) / 1024);
  result.handles = entries("/proc/self/fd");
  result.threads = entries("/proc/self/task");
  return result;
}

uint64_t next(uint64_t &state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// The objects of a training loop over two tensors, and the model of its scale.
class Training {
 public:
  explicit Training(gsc_context *context) {
    const gsc_tensor p[2] = {make_tensor(params_[0]), make_tensor(params_[1])};
    const gsc_tensor g[2] = {make_tensor(grads_[0]), make_tensor(grads_[1])};
    const char *const names[2] = {"weight", nullptr};
    CHECK(gsc_tensor_list_create(context, p, 2, names, &param_list_) == GSC_OK);
    CHECK(gsc_tensor_list_create(context, g, 2, nullptr, &grad_list_) == GSC_OK);
    gsc_optimizer_options options;
    CHECK(gsc_optimizer_options_init(&options, sizeof options, GSC_ADAMW) == GSC_OK);
    CHECK(gsc_optimizer_create(context, &options, param_list_, grad_list_, nullptr, nullptr, 0, &optimizer_) == GSC_OK);
    gsc_scaler_options policy = GSC_SCALER_OPTIONS_INIT;
    policy.init_scale = scale_;
    policy.growth_interval = kInterval;
    policy.min_scale = kMin;
    policy.max_scale = kMax;
    CHECK(gsc_scaler_create(context, &policy, &scaler_) == GSC_OK);
  }
  Training(const Training &) = delete;
  Training &operator=(const Training &) = delete;
  ~Training() {
    gsc_tensor_list_destroy(param_list_);
    gsc_scaler_destroy(scaler_);
    gsc_tensor_list_destroy(grad_list_);
    gsc_optimizer_destroy(optimizer_);
  }

  void step(uint64_t &random) {
    for (auto &grad : grads_) {
      for (float &value : grad) value = static_cast<float>(next(random) % 1000) * 1e-3f * scale_;
    }
    const bool fault = next(random) % 5 == 0;
    if (fault) {
      const float bad[] = {INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN()};
      grads_[next(random) % 2][next(random) % kCount] = bad[next(random) % 3];
    }
    const float first = params_[0][0];
    switch (next(random) % 3) {
      case 0:
        CHECK(gsc_scaler_step_and_update(scaler_, optimizer_, nullptr) == GSC_OK);
        break;
      case 1:
        CHECK(gsc_scaler_unscale(scaler_, grad_list_, nullptr) == GSC_OK);
        CHECK(gsc_scaler_clip_grad_norm(scaler_, grad_list_, 1.0, GSC_NORM_L2, nullptr) == GSC_OK);
        CHECK(gsc_scaler_step(scaler_, optimizer_, nullptr) == GSC_OK);
        CHECK(gsc_scaler_update(scaler_, nullptr) == GSC_OK);
        break;
      default:
        CHECK(gsc_scaler_check_range(scaler_, grad_list_, 1, 1, nullptr) == GSC_OK);
        CHECK(gsc_scaler_update(scaler_, nullptr) == GSC_ERROR_BAD_STATE);  // and its message
        CHECK(gsc_scaler_step(scaler_, optimizer_, nullptr) == GSC_OK);
        CHECK(gsc_scaler_update(scaler_, nullptr) == GSC_OK);
    }
    faults_ += fault ? 1 : 0;
    ++steps_;
    if (fault) {
      scale_ = std::fmax(kMin, scale_ / 2);
      clean_ = 0;
      CHECK(params_[0][0] == first);
    } else if (++clean_ == kInterval) {
      scale_ = std::fmin(kMax, scale_ * 2);
      clean_ = 0;
    }
    float scale = 0.0f;
    CHECK(gsc_scaler_get_scale_sync(scaler_, &scale, nullptr) == GSC_OK && scale == scale_);
    int64_t applied = 0, skipped = 0;
    CHECK(gsc_optimizer_get_steps_sync(optimizer_, &applied, &skipped, nullptr) == GSC_OK);
    CHECK(skipped == faults_ && applied == steps_ - faults_);
  }
  [[nodiscard]] int64_t faults() const { return faults_; }

 private:
  static constexpr int kCount = 33;
  static constexpr int kInterval = 4;
  static constexpr float kMin = 1.0f, kMax = 65536.0f;
  static gsc_tensor make_tensor(float (&data)[kCount]) {
    gsc_tensor tensor{};
    tensor.data = data;
    tensor.count = kCount;
    tensor.dtype = GSC_FP32;
    return tensor;
  }
  float params_[2][kCount] = {}, grads_[2][kCount] = {};
  gsc_tensor_list *param_list_ = nullptr, *grad_list_ = nullptr;
  gsc_optimizer *optimizer_ = nullptr;
  gsc_scaler *scaler_ = nullptr;
  float scale_ = 1024.0f;
  int clean_ = 0;
  int64_t steps_ = 0, faults_ = 0;
};

/// `share` cycles of everything on `shared` and, every 16th, on a separate context; then `steps` steps.
void work(gsc_context *shared, int64_t cycles, int64_t steps, uint64_t random, std::atomic<int64_t> *faults) {
  for (int64_t i = 0; i < cycles; ++i) {
    gsc_context *own = nullptr;
    if (i % 16 == 0) {
      gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
      options.num_threads = 2;
      CHECK(gsc_context_create(&options, &own) == GSC_OK);
    }
    {
      Training training(own != nullptr ? own : shared);
      gsc_context_destroy(own);  // its children keep it
      training.step(random);
    }
  }
  Training training(shared);
  for (int64_t i = 0; i < steps; ++i) training.step(random);
  *faults += training.faults();
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  const int64_t cycles = std::atoll(argv[1]), steps = std::atoll(argv[2]);
  const int threads = std::atoi(argv[3]);
  gsc_context *context = nullptr;
  CHECK(gsc_context_create(nullptr, &context) == GSC_OK);
  std::atomic<int64_t> faults{0};
  Usage before;
  // The first tenth settles what an allocator keeps for every thread.
  for (const bool measured : {false, true}) {
    if (measured) before = usage();
    std::vector<std::thread> workers;
    for (int i = 0; i < threads; ++i) {
      const int64_t share = threads * (measured ? 1 : 10);
      workers.emplace_back(work, context, cycles / share, steps / share, static_cast<uint64_t>(i + 1) * 7919, &faults);
    }
    for (std::thread &worker : workers) worker.join();
  }
  gsc_context_destroy(context);
  const Usage after = usage();
  std::printf(
      "%lld cycles, %lld steps, %lld faults, %d threads: resident %ld KiB before, %ld after; handles %ld, %ld; "
      "threads %ld, %ld\n",
      static_cast<long long>(cycles), static_cast<long long>(steps), static_cast<long long>(faults), threads,
      before.resident_kib, after.resident_kib, before.handles, after.handles, before.threads, after.threads);
  CHECK(after.resident_kib - before.resident_kib < 8192);
  CHECK(after.handles <= before.handles);
  return 0;
}
