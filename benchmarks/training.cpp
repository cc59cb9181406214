// SPDX-License-Identifier: Apache-2.0
// Arrays and lists of a training set-up.
#include "training.h"

#include <utility>

namespace bench {

using gradscaler::Optimizer;
using gradscaler::OptimizerKind;
using gradscaler::TensorList;
using gradscaler::TensorListRef;

Traffic traffic_of(const Recipe &recipe, const Layout &layout) {
  const int64_t grad = size_of(layout.grad);
  const int64_t param = size_of(layout.param);
  const int64_t copy = layout.copy ? size_of(*layout.copy) : 0;
  const int64_t state = recipe.states * (layout.param == DType::fp64 ? 8 : 4);
  Traffic t{grad + param + copy + state, grad, grad + 2 * param + copy + 2 * state};
  // LAMB's first pass reads the parameters without writing them; its second reads them and the state once more. That of
  // LARS and NovoGrad reads parameters and gradients.
  if (recipe.options.kind == OptimizerKind::lamb) t.apply += param + state;
  if (recipe.options.kind == OptimizerKind::lars || recipe.options.kind == OptimizerKind::novograd) {
    t.apply += param + grad;
  }
  return t;
}

Training::Training(const Recipe &recipe, const Layout &layout, int64_t elements, Pages pages)
    : recipe_(recipe),
      workspace_(Workspace::shared(elements * traffic_of(recipe, layout).stored + 8 * Workspace::kSkewBytes, pages)),
      params_(workspace_.array(layout.param, elements, Fill::noise)),
      grads_(workspace_.array(layout.grad, elements, Fill::noise)) {
  if (layout.copy) copy_ = workspace_.array(*layout.copy, elements, Fill::zero);
  const DType state = layout.param == DType::fp64 ? DType::fp64 : DType::fp32;
  for (int i = 0; i < recipe.states; ++i) state_.push_back(workspace_.array(state, elements, Fill::zero));
}

Training::Cut Training::lists_of(int threads, std::span<const int64_t> counts, int step) const {
  gradscaler::Context &ctx = context(threads);
  const auto tensors = [&](const gradscaler::Tensor &whole) {
    std::vector<gradscaler::Tensor> taken;
    const auto all = cut(whole, counts);
    for (size_t i = 0; i < all.size(); i += step) taken.push_back(all[i]);
    return taken;
  };
  TensorList params(ctx, tensors(params_));
  TensorList grads(ctx, tensors(grads_));
  std::optional<TensorList> copy;
  if (copy_) copy.emplace(ctx, tensors(*copy_));
  std::vector<TensorList> state;
  std::vector<TensorListRef> state_refs;
  // Where a slot has numbers per tensor, which are no arrays here, the library makes all state.
  const OptimizerKind kind = recipe_.options.kind;
  const bool has_numbers = kind == OptimizerKind::adamw_schedule_free || kind == OptimizerKind::sgd_schedule_free ||
                           kind == OptimizerKind::novograd;
  for (size_t i = 0; i < state_.size() && !has_numbers; ++i) {
    state.emplace_back(ctx, tensors(state_[i]));
    state_refs.emplace_back(state.back().get());
  }
  Optimizer optimizer(ctx, recipe_.options, params, grads, copy ? TensorListRef(*copy) : TensorListRef(), state_refs);
  return {std::move(params), std::move(grads), std::move(copy), std::move(state), std::move(optimizer)};
}

}  // namespace bench
