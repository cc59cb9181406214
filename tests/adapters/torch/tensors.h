// SPDX-License-Identifier: Apache-2.0
// Tensors of the tests of the libtorch adapter.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <gradscaler/adapters/torch.hpp>
#include <vector>

using Tensors = std::vector<at::Tensor>;

inline bool same_bits(const at::Tensor &a, const at::Tensor &b) {
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

inline testing::AssertionResult same_bits(const Tensors &a, const Tensors &b) {
  const auto [differs, _] = std::mismatch(a.begin(), a.end(), b.begin(), b.end(),
                                          [](const at::Tensor &x, const at::Tensor &y) { return same_bits(x, y); });
  if (differs == a.end() && a.size() == b.size()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "tensor " << differs - a.begin() << " has other bits";
}

inline torch::optim::AdamWParamState &state_of(torch::optim::AdamW &adamw, const at::Tensor &param) {
  return static_cast<torch::optim::AdamWParamState &>(*adamw.state().at(param.unsafeGetTensorImpl()));
}

inline at::Tensor parameter(at::IntArrayRef sizes, uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator, at::TensorOptions()).requires_grad_();
}

inline Tensors parameters(uint64_t seed = 1) {
  return {parameter({33, 7}, seed), parameter({129}, seed + 1), parameter({5, 3, 2}, seed + 2)};
}
