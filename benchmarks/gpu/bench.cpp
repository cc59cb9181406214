// SPDX-License-Identifier: Apache-2.0
// Benchmarks of the CUDA backend alone: memory ceilings, single passes, and whole tails over the shapes of models.
// Calls and graph replays are timed from C++, arrays hold noise, and the cache is flushed by reading before every run.
// Rows are written as soon as they are measured: medians, with the tenth and ninetieth percentile. goals.py evaluates
// them; bench.py compares with PyTorch and others. Needs only a driver.
//
//   gradscaler_gpu_bench --rows raw.jsonl --shapes shapes.txt [--seconds 200] [--only TEXT] [--small]
//
// --only runs the ceilings and what has TEXT in its name. --small is for testing the program itself: everything is tiny
// and its numbers mean nothing.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <gradscaler/gradscaler.hpp>
#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/gpu/kernels.h"

namespace {

using Clock = std::chrono::steady_clock;
using enum gradscaler::OptimizerKind;
using gradscaler::OptimizerKind;
using gradscaler::TensorList;

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

struct Settings {
  std::string rows = "raw.jsonl";
  std::string shapes;
  std::string only;
  double seconds = 200.0;
  bool small = false;
};

/// Device memory for arrays, freed all at once.
class Memory {
 public:
  Memory() = default;
  Memory &operator=(Memory &&) = delete;
  ~Memory() {
    for (void *memory : taken_) cudaFree(memory);
  }
  char *take(int64_t bytes) {
    void *memory = nullptr;
    check(cudaMalloc(&memory, bytes));
    taken_.push_back(memory);
    return static_cast<char *>(memory);
  }
  /// Tensors of these sizes, filled with noise, `offset` elements past an address that is aligned to 512 bytes.
  std::vector<gsc_tensor> tensors(const std::vector<int64_t> &counts, int32_t dtype, cudaStream_t stream,
                                  int64_t offset) {
    const int64_t size = dtype == GSC_FP32 ? 4 : 2;
    int64_t bytes = 0;
    for (const int64_t count : counts) bytes += room((count + offset) * size);
    char *at = take(bytes);
    check(bench::fill_noise(at, dtype, bytes, taken_.size(), stream));
    std::vector<gsc_tensor> result(counts.size());
    for (size_t i = 0; i < counts.size(); ++i) {
      result[i].data = at + offset * size;
      result[i].count = counts[i];
      result[i].dtype = dtype;
      at += room((counts[i] + offset) * size);
    }
    return result;
  }

 private:
  static int64_t room(int64_t bytes) { return (bytes + 511) / 512 * 512; }
  std::vector<void *> taken_;
};

struct Layout {
  const char *name;
  int32_t grad;
  int32_t copy;  ///< 0: none
  /// Bytes per element that a check and an AdamW step move.
  int64_t check_bytes() const { return grad == GSC_FP32 ? 4 : 2; }
  int64_t apply_bytes() const { return check_bytes() + 24 + (copy != 0 ? 2 : 0); }
};
constexpr Layout kFp32{"fp32 grads", GSC_FP32, 0};
constexpr Layout kFp16{"fp16 grads", GSC_FP16, 0};
constexpr Layout kBf16{"bf16 grads", GSC_BF16, 0};
constexpr Layout kFp16Copy{"fp16 grads, 16-bit copy", GSC_FP16, GSC_FP16};

/// An optimizer with a scaler over its own tensors.
struct Training {
  Training(gradscaler::Context &context, cudaStream_t stream, OptimizerKind kind, const std::vector<int64_t> &counts,
           const Layout &layout, int64_t offset = 0, double ema_decay = 0.0)
      : stream(stream),
        grad_tensors(memory.tensors(counts, layout.grad, stream, offset)),
        params(context, memory.tensors(counts, GSC_FP32, stream, offset)),
        grads(context, grad_tensors),
        scaler(context, {.min_scale = 1.0F}) {  // hundreds of skipped steps must not make it 0
    if (layout.copy != 0) copies.emplace(context, memory.tensors(counts, layout.copy, stream, offset));
    const gradscaler::OptimizerOptions options = {.kind = kind, .ema_decay = ema_decay};
    optimizer.emplace(context, options, params, grads,
                      copies ? gradscaler::TensorListRef(*copies) : gradscaler::TensorListRef());
  }
  void check() {
    scaler.check(grads, stream);
    scaler.discard();
  }
  void apply() { optimizer->step(stream); }
  void tail() {
    scaler.clip_grad_norm(grads, 1.0, gradscaler::Norm::l2, stream);
    scaler.step_and_update(*optimizer, stream);
  }

  cudaStream_t stream;
  Memory memory;
  std::vector<gsc_tensor> grad_tensors;
  TensorList params, grads;
  std::optional<TensorList> copies;
  gradscaler::GradScaler scaler;
  std::optional<gradscaler::Optimizer> optimizer;
};

/// The operations that `work` enqueues, as a graph.
class Graph {
 public:
  Graph(cudaStream_t stream, const std::function<void()> &work) : stream_(stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    work();
    check(cudaStreamEndCapture(stream, &graph_));
    check(cudaGraphInstantiate(&executable_, graph_, 0));
  }
  Graph &operator=(Graph &&) = delete;
  ~Graph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  void replay() const { check(cudaGraphLaunch(executable_, stream_)); }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

/// Microseconds of all runs of a case.
struct Times {
  explicit Times(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    median = values[values.size() / 2];
    p10 = values[values.size() / 10];
    p90 = values[values.size() - 1 - values.size() / 10];
  }
  double median, p10, p90;
};

class Bench {
 public:
  explicit Bench(const Settings &settings)
      : settings_(settings),
        context_({.device_type = gradscaler::DeviceType::cuda}),
        rows_(settings.rows, std::ios::app),
        deadline_(Clock::now() +
                  std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(settings.seconds))) {
    if (!rows_) throw std::runtime_error("cannot write " + settings.rows);
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    check(cudaEventCreateWithFlags(&begin_, 0));
    check(cudaEventCreateWithFlags(&end_, 0));
    flush_ = memory_.take(flush_bytes());
    check(bench::fill_noise(flush_, GSC_FP32, flush_bytes(), 1, stream_));
  }
  Bench &operator=(Bench &&) = delete;
  ~Bench() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }

  void run() {
    ceilings();
    for (const int64_t offset : {int64_t{0}, int64_t{1}}) {
      for (const Layout &layout : {kFp16, kBf16, kFp32, kFp16Copy}) passes(layout, offset);
    }
    huge();
    skipped();
    tails();
    optimizers();
  }

 private:
  int64_t flush_bytes() const { return int64_t{settings_.small ? 4 << 10 : 512 << 20}; }
  /// Elements of each of four tensors whose arrays of this size total 1 GiB.
  std::vector<int64_t> large(int64_t size) const {
    return std::vector<int64_t>(4, (settings_.small ? int64_t{1} << 12 : int64_t{1} << 28) / size);
  }
  bool wanted(const std::string &name) const {
    return name.find(settings_.only) != std::string::npos && Clock::now() < deadline_;
  }

  /// Writes a row. `bytes` 0: no bandwidth.
  void add(const std::string &name, const Times &times, int64_t bytes) {
    const double rate = bytes / times.median / 1e3;
    if (name == "ceiling: copy") copy_rate_ = rate;
    std::ostringstream line;
    line << std::fixed << std::setprecision(2) << R"({"case": ")" << name << R"(", "us": )" << times.median
         << R"(, "p10": )" << times.p10 << R"(, "p90": )" << times.p90;
    if (bytes != 0) {
      line << R"(, "bytes": )" << bytes << R"(, "GB/s": )" << rate << std::setprecision(3) << R"(, "of copy": )"
           << rate / copy_rate_;
    }
    line << "}\n";
    rows_ << line.str() << std::flush;
    std::cout << line.str() << std::flush;
  }

  int warmups() const { return settings_.small ? 1 : 5; }
  int runs() const { return settings_.small ? 1 : 30; }

  /// Times on the device with a cold cache. The host runs ahead: it enqueues while the cache is being flushed.
  /// First the device works for 50 ms: its clocks have fallen while the arrays were allocated.
  Times time(const std::function<void()> &work) {
    std::vector<double> times;
    const auto warm = Clock::now() + std::chrono::milliseconds(settings_.small ? 0 : 50);
    while (Clock::now() < warm) {
      work();
      check(cudaStreamSynchronize(stream_));
    }
    for (int run = -warmups(); run < runs(); ++run) {
      check(bench::read(flush_, flush_bytes(), stream_));
      check(cudaEventRecord(begin_, stream_));
      work();
      check(cudaEventRecord(end_, stream_));
      check(cudaEventSynchronize(end_));
      float milliseconds = 0.0F;
      check(cudaEventElapsedTime(&milliseconds, begin_, end_));
      if (run >= 0) times.push_back(milliseconds * 1e3);
    }
    return Times(times);
  }

  /// Times of the calling thread with an idle device. It spins first: a thread that has waited for milliseconds
  /// takes tens of microseconds to reach its speed again.
  Times time_host(const std::function<void()> &work) {
    std::vector<double> times;
    for (int run = -warmups(); run < runs(); ++run) {
      check(cudaStreamSynchronize(stream_));
      const auto awake = Clock::now() + std::chrono::microseconds(200);
      while (Clock::now() < awake) {
      }
      const auto begin = Clock::now();
      work();
      const std::chrono::duration<double, std::micro> time = Clock::now() - begin;
      if (run >= 0) times.push_back(time.count());
    }
    check(cudaStreamSynchronize(stream_));
    return Times(times);
  }

  void ceilings() {
    Memory memory;
    const int64_t bytes = settings_.small ? 4 << 10 : int64_t{1} << 30;
    char *arrays[2];
    for (char *&array : arrays) {
      array = memory.take(bytes);
      check(bench::fill_noise(array, GSC_FP32, bytes, 2, stream_));
    }
    std::optional<Times> best;
    for (const int loads : {0, 2, 4, 8}) {
      const Times times = time([&] { check(bench::copy(loads, arrays[0], arrays[1], bytes, stream_)); });
      if (!best || times.median < best->median) best = times;
    }
    add("ceiling: copy", *best, 2 * bytes);
    add("one kernel", time([&] { check(bench::read(arrays[0], 16, stream_)); }), 0);
    add("ceiling: read only", time([&] { check(bench::read(arrays[0], bytes, stream_)); }), bytes);
  }

  /// G1 to G3 and G9: check and step alone, over 1 GiB of gradients.
  void passes(const Layout &layout, int64_t offset) {
    const std::string name = std::string(layout.name) + (offset != 0 ? ", misaligned" : "");
    if (!wanted("check, " + name) && !wanted("AdamW apply, " + name)) return;
    const std::vector<int64_t> counts = large(layout.check_bytes());
    Training training(context_, stream_, adamw, counts, layout, offset);
    const int64_t elements = 4 * counts[0];
    if (layout.copy == 0) {
      add("check, " + name, time([&] { training.check(); }), elements * layout.check_bytes());
    }
    add("AdamW apply, " + name, time([&] { training.apply(); }), elements * layout.apply_bytes());
  }

  /// G12.
  void huge() {
    if (!wanted("2^31 elements")) return;
    const int64_t elements = (settings_.small ? int64_t{1} << 12 : int64_t{1} << 31) + 4096;
    Training training(context_, stream_, adamw, {elements}, kFp16);
    add("check, 2^31 elements", time([&] { training.check(); }), elements * kFp16.check_bytes());
    add("AdamW apply, 2^31 elements", time([&] { training.apply(); }), elements * kFp16.apply_bytes());
  }

  /// G11: a step whose last gradient is inf.
  void skipped() {
    if (!wanted("skipped step")) return;
    Training training(context_, stream_, adamw, large(2), kFp16);
    const gsc_tensor &last = training.grad_tensors.back();
    const uint16_t inf = 0x7c00;
    check(cudaMemcpyAsync(static_cast<uint16_t *>(last.data) + last.count - 1, &inf, sizeof inf, cudaMemcpyHostToDevice,
                          stream_));
    check(cudaStreamSynchronize(stream_));
    add("check, with an inf", time([&] { training.check(); }), 0);
    add("skipped step", time([&] { training.tail(); }), 0);
  }

  /// G4 to G8 and G10: the whole tail, eager and as a graph, on the device and on the host; then its two launches.
  void tails() {
    std::ifstream file(settings_.shapes);
    std::string line;
    while (std::getline(file, line)) {
      const size_t tab = line.find('\t');
      std::istringstream in(line.substr(tab + 1));
      std::vector<int64_t> counts;
      for (int64_t count = 0; in >> count;) counts.push_back(count);
      if (settings_.small) {
        counts.resize(std::min<size_t>(counts.size(), 20));
        for (int64_t &count : counts) count = std::min<int64_t>(count, 100);
      }
      for (const Layout &layout : {kFp32, kFp16Copy}) tail(line.substr(0, tab), counts, layout);
    }
  }
  void tail(const std::string &model, const std::vector<int64_t> &counts, const Layout &layout) {
    const std::string name = model + ", " + layout.name;
    if (!wanted("tail, " + name)) return;
    Training training(context_, stream_, adamw, counts, layout);
    int64_t bytes = 0;
    for (const int64_t count : counts) bytes += count * (layout.check_bytes() + layout.apply_bytes());
    add("tail, eager: " + name, time([&] { training.tail(); }), bytes);
    add("tail, host: " + name, time_host([&] { training.tail(); }), 0);
    const Graph graph(stream_, [&] { training.tail(); });
    add("tail, graph: " + name, time([&] { graph.replay(); }), bytes);
    add("tail, graph host: " + name, time_host([&] { graph.replay(); }), 0);
    add("tail, check alone: " + name, time([&] { training.check(); }), 0);
    add("tail, step alone: " + name, time([&] { training.apply(); }), 0);
  }

  /// Every optimizer over fp16 gradients, with a 16-bit copy.
  void optimizers() {
    struct Entry {
      const char *name;
      OptimizerKind kind;
      int64_t bytes;
      double ema_decay = 0.0;
    };
    // With default options: RMSprop has one state, Schedule-Free SGD and LARS have momentum.
    constexpr Entry kEntries[] = {
        {"SGD", sgd, 12},
        {"Adam", adam, 28},
        {"Adagrad", adagrad, 20},
        {"Lion", lion, 20},
        {"LAMB", lamb, 40},
        {"RMSprop", rmsprop, 20},
        {"Adadelta", adadelta, 28},
        {"Adamax", adamax, 28},
        {"NAdam", nadam, 28},
        {"RAdam", radam, 28},
        {"AdaBelief", adabelief, 28},
        {"AdEMAMix", ademamix, 36},
        {"Schedule-Free AdamW", adamw_schedule_free, 28},
        {"Schedule-Free SGD", sgd_schedule_free, 20},
        {"LARS", lars, 26},
        {"NovoGrad", novograd, 26},
        {"AdamW, average", adamw, 36, 0.999},
    };
    for (const Entry &entry : kEntries) {
      const std::string name = std::string(entry.name) + " apply, " + kFp16Copy.name;
      if (!wanted(name)) continue;
      const std::vector<int64_t> counts = large(4);
      Training training(context_, stream_, entry.kind, counts, kFp16Copy, 0, entry.ema_decay);
      add(name, time([&] { training.apply(); }), 4 * counts[0] * entry.bytes);
    }
  }

  Settings settings_;
  gradscaler::Context context_;
  std::ofstream rows_;
  Clock::time_point deadline_;
  Memory memory_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  char *flush_ = nullptr;
  double copy_rate_ = 1.0;
};

Settings settings_of(int count, char **arguments) {
  Settings settings;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--small") {
      settings.small = true;
      continue;
    }
    if (i + 1 == count) throw std::runtime_error(argument + " is unknown or has no value");
    const char *value = arguments[++i];
    if (argument == "--rows") {
      settings.rows = value;
    } else if (argument == "--shapes") {
      settings.shapes = value;
    } else if (argument == "--only") {
      settings.only = value;
    } else if (argument == "--seconds") {
      settings.seconds = std::strtod(value, nullptr);
    } else {
      throw std::runtime_error(argument + " is unknown");
    }
  }
  return settings;
}

}  // namespace

int main(int count, char **arguments) {
  try {
    Bench(settings_of(count, arguments)).run();
  } catch (const std::exception &error) {
    std::fprintf(stderr, "gradscaler_gpu_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
