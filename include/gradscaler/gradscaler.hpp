// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_GRADSCALER_HPP
#define GRADSCALER_GRADSCALER_HPP
//
// C++20 over the C ABI and nothing else: owning handles, std::span, options with named initializers, one exception.
// Names are those of <gradscaler/gradscaler.h> without their prefix; the contracts (what a call does, which memory and
// stream it needs, when it fails) are written there. Where C returns a status, Error is thrown.
//
//     gradscaler::Context ctx;                                              // the CPU, all its threads
//     gradscaler::TensorList params(ctx, {gradscaler::tensor(weights)});    // weights: std::vector<float>
//     gradscaler::TensorList grads(ctx, {gradscaler::tensor(halfs, gradscaler::DType::fp16)});
//     gradscaler::Optimizer adamw(ctx, {.lr = 3e-4}, params, grads);
//     gradscaler::GradScaler scaler(ctx, {.growth_interval = 500});
//     for (;;) {
//       backward(loss * scaler.get_scale_sync());
//       scaler.clip_grad_norm(grads, 1.0);
//       scaler.step(adamw);
//       scaler.update();
//     }
//
// Objects own their handle and can be moved, not copied; a moved-from object may only be assigned to or destroyed.
// They may be destroyed in any order. Buffers stay yours and must outlive the lists over them.
//
// Without exceptions (-fno-exceptions; RTTI is not needed either) a failing call prints its Error and aborts, or calls
// your handler. If that returns, so does the call, with zeros, and an object that could not be made is false:
//
//     gradscaler::set_failure_handler([](const gradscaler::Error &error) { log_error("%s", error.what()); });
//     gradscaler::Context ctx({.device_type = gradscaler::DeviceType::cuda});
//     if (!ctx) ctx = gradscaler::Context();
//
#include <gradscaler/cpp/base.hpp>
#include <gradscaler/cpp/context.hpp>
#include <gradscaler/cpp/ops.hpp>
#include <gradscaler/cpp/optimizer.hpp>
#include <gradscaler/cpp/scaler.hpp>
#include <gradscaler/cpp/tensor_list.hpp>

#endif  // GRADSCALER_GRADSCALER_HPP
