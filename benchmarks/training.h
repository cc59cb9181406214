// SPDX-License-Identifier: Apache-2.0
// Parameters, gradients, state and model copy of an optimizer in a workspace, and the bytes that its passes move.
#pragma once

#include <optional>

#include "workspace.h"

namespace bench {

/// An optimizer as benchmarks name it.
struct Recipe {
  const char *name;
  gradscaler::OptimizerOptions options;
  int states;  ///< slots, each read and written by a step
};
inline constexpr Recipe kAdamw{"adamw", {.kind = gradscaler::OptimizerKind::adamw}, 2};

/// The dtypes of a training set-up.
struct Layout {
  const char *name;
  DType grad;
  DType param;
  std::optional<DType> copy;
};
/// fp32 throughout.
inline constexpr Layout kFp32{"fp32", DType::fp32, DType::fp32, std::nullopt};
/// 16-bit gradients and weights with fp32 master weights.
inline constexpr Layout kFp16Master{"fp16_master", DType::fp16, DType::fp32, DType::fp16};
inline constexpr Layout kBf16Master{"bf16_master", DType::bf16, DType::fp32, DType::bf16};

/// A scaler's options under which the scale stays what it is.
inline gradscaler::ScalerOptions constant_scale(float scale) { return {.init_scale = scale, .max_scale = scale}; }

/// Bytes a parameter, after docs/performance.md.
struct Traffic {
  int64_t stored;  ///< all arrays, each once
  int64_t check;   ///< moved by the check: the gradients, once
  int64_t apply;   ///< moved by the optimizer's pass, or by both of LAMB's
};
Traffic traffic_of(const Recipe &recipe, const Layout &layout);

/// All arrays of a training set-up; `lists_of` cuts them into tensors, the same memory any number of ways.
class Training {
 public:
  Training(const Recipe &recipe, const Layout &layout, int64_t elements, Pages pages = Pages::usual);

  [[nodiscard]] const gradscaler::Tensor &grads() const { return grads_; }

  /// Lists and an optimizer over the arrays, cut into tensors of `counts` elements.
  struct Cut {
    gradscaler::TensorList params, grads;
    std::optional<gradscaler::TensorList> copy;
    std::vector<gradscaler::TensorList> state;
    gradscaler::Optimizer optimizer;
  };
  /// With `step` only every so many.
  [[nodiscard]] Cut lists_of(int threads, std::span<const int64_t> counts, int step = 1) const;

 private:
  Recipe recipe_;
  Workspace workspace_;
  gradscaler::Tensor params_, grads_;
  std::optional<gradscaler::Tensor> copy_;
  std::vector<gradscaler::Tensor> state_;
};

}  // namespace bench
