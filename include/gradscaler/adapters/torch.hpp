// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_ADAPTERS_TORCH_HPP
#define GRADSCALER_ADAPTERS_TORCH_HPP
//
// Loss scaling for the C++ frontend of PyTorch (libtorch), which has no GradScaler. Header-only over gradscaler.hpp;
// the library itself does not depend on libtorch; a program that includes this header needs <torch/torch.h> and links
// libtorch.
//
//     gradscaler::torch::GradScaler scaler(torch::kCUDA);
//     gradscaler::torch::AdamW adamw(model->parameters(), torch::optim::AdamWOptions(1e-3));  // or any torch::optim
//     for (auto &batch : *loader) {
//       adamw.zero_grad();
//       scaler.scale(loss_of(model, batch)).backward();   // the forward pass under autocast
//       scaler.step(adamw);                               // skipped if a gradient is inf or NaN
//       scaler.update();
//     }
//
// GradScaler has the names and the rules of torch.amp.GradScaler in Python. The optimizers are those of torch::optim by
// class, options, state and archive, with step() done by this library in one pass. Tensors may be on the CPU or on CUDA
// devices; work goes to the current stream. What fails throws gradscaler::Error, before anything has changed.
//
#include <gradscaler/adapters/torch/optimizers.hpp>
#include <gradscaler/adapters/torch/scaler.hpp>

#endif  // GRADSCALER_ADAPTERS_TORCH_HPP
