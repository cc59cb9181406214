// SPDX-License-Identifier: Apache-2.0
//
// A frame loop on a VkDevice that trains small fp16 networks to be a texture. Each frame goes forward and backward in two
// compute shaders of this program and takes the optimizer's step on the same command buffer. Three arms see the same
// pixels, from the same first weights:
//
//   static 128    the loss is multiplied by 128, and no one looks at the gradients
//   static 2^24   the same with a scale that makes them overflow
//   gradscaler    begins with 2^24, skips steps that overflowed, and adapts the scale
//
//   vulkan_texture [--frames N] [--every N] [--check]
//
// writes texture-NNNN.png, with the target beside the arms, every N frames and at the end. --check fails unless the first
// scale ruins the second arm and the third one learns. Exit status 77: there is no device.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <gradscaler/vulkan.hpp>
#include <memory>
#include <string>
#include <vector>

#include "device.h"
#include "gradient.spv.h"
#include "pixel.spv.h"
#include "png.h"

namespace {

namespace gs = gradscaler;

constexpr uint32_t kSize = 96, kPixels = kSize * kSize, kSamples = 512, kGap = 4;
// As in network.glsl.
constexpr uint32_t kWidth = 32, kLayers = 3, kColors = 3;
constexpr uint32_t kRows = (kLayers - 1) * kWidth + kColors, kColumns = kWidth + 1, kStride = kLayers * kWidth;
constexpr uint32_t kWeights = kRows * kColumns;
constexpr float kTooLarge = 0x1p24F;

struct Arguments {
  VkDeviceAddress weights, gradients, activations, deltas, scale, target, image;
  uint32_t samples, size, frame, trains;
};

/// Rings of colors, and a checker where they are dark.
std::vector<float> make_target() {
  std::vector<float> target;
  for (uint32_t i = 0; i < kPixels; ++i) {
    const float x = (static_cast<float>(i % kSize) + 0.5F) / kSize, y = (static_cast<float>(i / kSize) + 0.5F) / kSize;
    const float radius = std::hypot(x - 0.5F, y - 0.5F);
    const bool light = (i % kSize / 12 + i / kSize / 12) % 2 == 0;
    const bool ring = std::fmod(radius, 0.16F) < 0.08F && radius < 0.48F;
    for (const float color : {0.95F - 0.6F * x, 0.35F + 0.5F * y, 0.25F + 0.6F * x}) {
      target.push_back(ring ? color : light ? 0.85F : 0.15F);
    }
  }
  return target;
}

/// A network and how it is trained.
class Arm {
 public:
  Arm(Device &device, const gs::Context &context, std::string arm_name, float first_scale, bool dynamic)
      : name(std::move(arm_name)),
        image(device.allocate<float>(size_t{kPixels} * kColors)),
        masters_(device.allocate<float>(kWeights)),
        weights_(device.allocate<uint16_t>(kWeights)),
        gradients_(device.allocate<uint16_t>(kWeights)),
        activations_(device.allocate<uint16_t>(size_t{kSamples} * kStride)),
        deltas_(device.allocate<uint16_t>(size_t{kSamples} * kStride)),
        scale_(device.allocate<float>(2)) {
    uint32_t random = 1;
    for (uint32_t i = 0; i < kWeights; ++i) {  // uniform, of variance 2 / kWidth; biases are 0
      random = random * 1664525U + 1013904223U;
      const float uniform = static_cast<float>(random >> 8) * 0x1p-23F - 1.0F;
      masters_.host[i] = i % kColumns == kWidth ? 0.0F : uniform * std::sqrt(6.0F / kWidth);
    }
    scale_.host[0] = first_scale;
    scale_.host[1] = 1.0F / first_scale;
    std::vector<gs::Tensor> masters, weights, gradients;
    for (uint32_t row = 0; row < kRows; row += kWidth) {
      const uint32_t first = row * kColumns, count = std::min(kWidth, kRows - row) * kColumns;
      masters.push_back(gs::tensor(masters_.data(first), count, gs::DType::fp32));
      weights.push_back(gs::tensor(weights_.data(first), count, gs::DType::fp16));
      gradients.push_back(gs::tensor(gradients_.data(first), count, gs::DType::fp16));
    }
    gs::ops::cast(context, masters, weights);
    const gs::TensorList params(context, masters), copy(context, weights);
    grads_ = std::make_unique<gs::TensorList>(context, gradients);
    adamw_ = std::make_unique<gs::Optimizer>(context, gs::OptimizerOptions{.lr = 6e-3, .weight_decay = 0.0}, params,
                                             *grads_, copy);
    if (dynamic) {
      const gs::ScalerOptions options{.init_scale = first_scale, .growth_interval = 100};
      scaler_ = std::make_unique<gs::GradScaler>(context, options);
    }
  }

  Arguments arguments(const Array<float> &target) const {
    const VkDeviceAddress scale =
        scaler_ ? reinterpret_cast<VkDeviceAddress>(scaler_->get_device_state().scale) : scale_.device;
    return {weights_.device,
            gradients_.device,
            activations_.device,
            deltas_.device,
            scale,
            target.device,
            image.device,
            kSamples,
            kSize,
            0,
            1};
  }

  /// Records what follows the backward pass.
  void step(VkCommandBuffer commands) {
    if (scaler_) {
      scaler_->clip_grad_norm(*grads_, 1.0, gs::Norm::l2, commands);
      scaler_->step(*adamw_, commands);  // checks, unscales, clips, steps and rounds the weights; or skips
      scaler_->update(commands);
    } else {
      adamw_->step_scaled(static_cast<const float *>(scale_.data(1)), nullptr, commands);
    }
  }

  float get_scale_sync() const { return scaler_ ? scaler_->get_scale_sync() : scale_.host[0]; }
  auto get_steps_sync() const { return adamw_->get_steps_sync(); }

  std::string name;
  Array<float> image;

 private:
  Array<float> masters_;
  Array<uint16_t> weights_, gradients_, activations_, deltas_;
  Array<float> scale_;  ///< and its inverse
  std::unique_ptr<gs::TensorList> grads_;
  std::unique_ptr<gs::Optimizer> adamw_;
  std::unique_ptr<gs::GradScaler> scaler_;
};

double mean_squared_error(const Array<float> &image, const Array<float> &target) {
  double sum = 0;
  for (size_t i = 0; i < image.size; ++i) sum += std::pow(double{image.host[i]} - double{target.host[i]}, 2);
  return sum / static_cast<double>(image.size);
}

/// Images side by side. NaN is black.
void write_strip(const std::string &path, const std::vector<Array<float>> &images) {
  const auto count = static_cast<uint32_t>(images.size());
  const uint32_t width = count * (kSize + kGap) - kGap;
  Bytes rgb(size_t{width} * kSize * 3, 255);
  for (uint32_t i = 0; i < count * kPixels * kColors; ++i) {
    const uint32_t image = i / (kPixels * kColors), at = i % (kPixels * kColors), row = at / (kSize * kColors);
    const float value = images[image].host[at];
    rgb[(row * width + image * (kSize + kGap)) * 3 + at % (kSize * kColors)] =
        value > 0.0F ? static_cast<uint8_t>(std::min(value, 1.0F) * 255.0F + 0.5F) : 0;
  }
  write_png(path, width, kSize, rgb);
}

int run(uint32_t frames, uint32_t every, bool check) {
  Device device;
  gscx_vulkan_device handles{};
  handles.struct_size = sizeof handles;
  handles.instance = device.instance;
  handles.physical_device = device.physical;
  handles.device = device.device;
  handles.queue = device.queue;
  handles.queue_family = device.family;
  handles.get_instance_proc_addr = reinterpret_cast<void *>(vkGetInstanceProcAddr);
  handles.enabled_features = &device.features;
  const gs::Context context = gs::experimental::context_create_vulkan(handles);

  const VkPipeline pixel = device.make_pipeline(pixel_spirv), gradient = device.make_pipeline(gradient_spirv);
  const Array<float> target = device.allocate<float>(size_t{kPixels} * kColors);
  std::ranges::copy(make_target(), target.host);
  std::vector<Arm> arms;
  arms.emplace_back(device, context, "static 128", 128.0F, false);
  arms.emplace_back(device, context, "static 2^24", kTooLarge, false);
  arms.emplace_back(device, context, "gradscaler", kTooLarge, true);
  std::vector<Array<float>> strip = {target};
  for (const Arm &arm : arms) strip.push_back(arm.image);

  const auto draw = [&](VkCommandBuffer commands) {
    for (const Arm &arm : arms) {
      Arguments arguments = arm.arguments(target);
      arguments.samples = kPixels;
      arguments.trains = 0;
      device.dispatch(commands, pixel, kPixels / 64, &arguments, sizeof arguments);
    }
  };
  device.run(draw);
  const double untrained = mean_squared_error(arms.back().image, target);

  for (uint32_t frame = 1; frame <= frames; ++frame) {
    const bool shows = frame == frames || frame % every == 0;
    device.run([&](VkCommandBuffer commands) {
      for (const Arm &arm : arms) {
        Arguments arguments = arm.arguments(target);
        arguments.frame = frame;
        device.dispatch(commands, pixel, kSamples / 64, &arguments, sizeof arguments);
      }
      barrier(commands);
      for (const Arm &arm : arms) {
        const Arguments arguments = arm.arguments(target);
        device.dispatch(commands, gradient, kRows, &arguments, sizeof arguments);
      }
      // The library's calls begin with a barrier; only the reader of the new weights needs one of this program.
      for (Arm &arm : arms) arm.step(commands);
      if (!shows) return;
      barrier(commands);
      draw(commands);
    });
    if (!shows) continue;
    char name[32];
    std::snprintf(name, sizeof name, "texture-%04u.png", frame);
    write_strip(name, strip);
  }

  std::printf("%-12s %6s %8s %12s %20s\n", "arm", "steps", "skipped", "scale at end", "mean squared error");
  std::vector<double> errors;
  for (const Arm &arm : arms) {
    const auto steps = arm.get_steps_sync();
    errors.push_back(mean_squared_error(arm.image, target));
    std::printf("%-12s %6lld %8lld %12.0f %20.5f\n", arm.name.c_str(), static_cast<long long>(steps.applied),
                static_cast<long long>(steps.skipped), double{arm.get_scale_sync()}, errors.back());
  }
  if (!check) return 0;
  const bool fails = !(errors[1] < untrained / 2), learns = errors[2] < untrained / 4;
  if (!fails) std::fprintf(stderr, "vulkan_texture: static 2^24 was to fail, but learned\n");
  if (!learns)
    std::fprintf(stderr, "vulkan_texture: gradscaler has not learned, the first error was %.5f\n", untrained);
  return fails && learns ? 0 : 1;
}

}  // namespace

int main(int argc, char **argv) try {
  uint32_t frames = 300, every = 100;
  bool check = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--check") {
      check = true;
    } else if ((option == "--frames" || option == "--every") && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      (option == "--frames" ? frames : every) = static_cast<uint32_t>(std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr, "usage: vulkan_texture [--frames N] [--every N] [--check]\n");
      return 2;
    }
  }
  return run(frames, every, check);
} catch (const NoDevice &none) {
  std::printf("vulkan_texture: skipped, %s\n", none.what());
  return 77;
} catch (const std::exception &error) {
  std::fprintf(stderr, "vulkan_texture: %s\n", error.what());
  return 1;
}
