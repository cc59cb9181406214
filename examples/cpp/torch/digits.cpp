// SPDX-License-Identifier: Apache-2.0
//
// A 64-64-64-10 network on handwritten digits with libtorch: in fp32, in fp16 by autocast, and in fp16 with a GradScaler;
// at a loss as it is, and at one that is averaged over a million elements, as in dense prediction.
//
//     torch_digits digits.csv [--cuda] [--check]
//
// The file has 64 pixels and a label in each line. Exit status 1 with --check if scaling does not do what it should.
#include <cstdio>
#include <fstream>
#include <gradscaler/adapters/torch.hpp>
#include <string>

#include "autocast.hpp"

namespace {

constexpr int kSteps = 400, kBatch = 64, kPixels = 64, kTrain = 1437;

struct Dataset {
  torch::Tensor pixels, labels;
};

Dataset read(const char *path, torch::Device device) {
  std::ifstream file(path);
  std::vector<float> numbers;
  for (std::string number; std::getline(file, number, ',');) {
    // The last number of a line and the first of the next stand together.
    const std::size_t end = number.find('\n');
    numbers.push_back(std::stof(number.substr(0, end)));
    if (end != std::string::npos && end + 1 < number.size()) numbers.push_back(std::stof(number.substr(end + 1)));
  }
  const torch::Tensor rows = torch::tensor(numbers).reshape({-1, kPixels + 1});
  return {(rows.narrow(1, 0, kPixels) / 16).to(device), rows.select(1, kPixels).to(torch::kLong).to(device)};
}

torch::nn::Sequential make_model() {
  using torch::nn::Linear;
  using torch::nn::ReLU;
  return torch::nn::Sequential(Linear(kPixels, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 10));
}

struct Arm {
  const char *name;
  bool half, scaled;
};

struct Result {
  double accuracy;
  int64_t skipped;
  float scale;
};

Result train(const Dataset &data, torch::Device device, const Arm &arm, double factor) {
  torch::manual_seed(0);
  torch::nn::Sequential model = make_model();
  model->to(device);
  const torch::Tensor order = torch::randperm(data.labels.size(0)).to(device);
  const torch::Tensor train = order.narrow(0, 0, kTrain), test = order.slice(0, kTrain);

  gradscaler::torch::AdamW adamw(model->parameters(), torch::optim::AdamWOptions(2e-3));
  gradscaler::torch::GradScaler scaler(device, {.growth_interval = 50, .enabled = arm.scaled});
  for (int step = 0; step < kSteps; ++step) {
    const torch::Tensor batch = train.index_select(0, torch::randint(kTrain, {kBatch}).to(device));
    adamw.zero_grad();
    torch::Tensor loss;
    {
      const Autocast autocast(device.type(), torch::kHalf, arm.half);
      const torch::Tensor logits = model->forward(data.pixels.index_select(0, batch));
      loss = torch::cross_entropy_loss(logits.to(torch::kFloat), data.labels.index_select(0, batch)) * factor;
    }
    scaler.scale(loss).backward();
    scaler.step(adamw);  // unscales and applies in one pass; skips if a gradient is inf or NaN
    scaler.update();     // grows the scale, or backs off
  }

  const torch::NoGradGuard no_grad;
  const torch::Tensor found = model->forward(data.pixels.index_select(0, test)).argmax(1);
  const double right = found.eq(data.labels.index_select(0, test)).to(torch::kDouble).mean().item<double>();
  const gsc_report report = arm.scaled ? scaler.native().get_report_sync() : gsc_report{};
  return {right, report.skipped, scaler.get_scale()};
}

/// Where scaling matters and where it does not.
bool as_expected(double factor, const Result &fp32, const Result &half, const Result &scaled) {
  const bool flushes = factor < 1e-5;
  return fp32.accuracy > 0.9 && scaled.accuracy > 0.9 && (flushes ? half.accuracy < 0.5 : half.accuracy > 0.9);
}

}  // namespace

int main(int argc, char **argv) try {
  bool cuda = false, check = false;
  for (int i = 2; i < argc; ++i) {
    cuda |= std::string(argv[i]) == "--cuda";
    check |= std::string(argv[i]) == "--check";
  }
  if (argc < 2) throw std::runtime_error("usage: torch_digits digits.csv [--cuda] [--check]");
  const torch::Device device = cuda ? torch::kCUDA : torch::kCPU;
  const Dataset data = read(argv[1], device);
  bool good = true;
  std::printf("%-8s  %-18s  %8s  %7s  %s\n", "loss x", "arm", "accuracy", "skipped", "scale");
  for (const double factor : {1.0, 1e-6}) {
    const Arm arms[] = {{"fp32", false, false}, {"fp16", true, false}, {"fp16 + GradScaler", true, true}};
    Result results[3];
    for (int i = 0; i < 3; ++i) {
      results[i] = train(data, device, arms[i], factor);
      std::printf("%-8g  %-18s  %6.1f %%  %7lld  %g\n", factor, arms[i].name, 100.0 * results[i].accuracy,
                  static_cast<long long>(results[i].skipped), static_cast<double>(results[i].scale));
    }
    good &= as_expected(factor, results[0], results[1], results[2]);
  }
  return check && !good ? 1 : 0;
} catch (const std::exception &error) {
  std::fprintf(stderr, "torch_digits: %s\n", error.what());
  return 1;
}
