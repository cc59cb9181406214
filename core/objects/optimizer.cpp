// SPDX-License-Identifier: Apache-2.0
// Making optimizers: their lists and their state.
#include "core/objects/optimizer.h"

#include <utility>

#include "core/base/error.h"

namespace gsc {
namespace {

constexpr Argument kState{"state"};

void require_same_shapes(const TensorList &param_list, const Plan &other, const Argument &what) {
  const Plan &params = param_list.plan();
  if (params.size() != other.size()) {
    fail(GSC_ERROR_INVALID_ARGUMENT, what, "has %lld tensors, but params has %lld",
         static_cast<long long>(other.size()), static_cast<long long>(params.size()));
  }
  for (int64_t i = 0; i < params.size(); ++i) {
    if (params.tensor(i).count != other.tensor(i).count) {
      fail(GSC_ERROR_INVALID_ARGUMENT, what.tensor(i), "has %lld elements, but params[%lld] has %lld%s",
           static_cast<long long>(other.tensor(i).count), static_cast<long long>(i),
           static_cast<long long>(params.tensor(i).count), NameSuffix(&param_list.names(), i).c_str());
    }
  }
}

/// Of this context, and with all its tensors.
void require_usable(const TensorList &list, const Ref<Context> &context, const Argument &what) {
  if (list.context().get() != context.get()) {
    fail(GSC_ERROR_INVALID_ARGUMENT, what, "belongs to another context");
  }
  const Plan &plan = list.plan();
  for (int64_t i = 0; plan.has_absent() && i < plan.size(); ++i) {
    if (!plan.is_absent(i)) continue;
    fail(GSC_ERROR_INVALID_ARGUMENT, what.tensor(i), "is absent; an optimizer is made while all are present%s",
         NameSuffix(&list.names(), i).c_str());
  }
}

void validate_lists(const Ref<Context> &context, const Optimizer::Lists &lists, int32_t state_count, int32_t slots) {
  require_usable(*lists.params, context, "params");
  require_usable(*lists.grads, context, "grads");
  const Plan &params = lists.params->plan();
  require_same_shapes(*lists.params, lists.grads->plan(), "grads");
  OverlapCheck overlap(context->memory());
  overlap.add(*lists.params, "params");
  overlap.add(*lists.grads, "grads");
  if (lists.model_copy) {
    require_usable(*lists.model_copy, context, "model_copy");
    require_same_shapes(*lists.params, lists.model_copy->plan(), "model_copy");
    overlap.add(*lists.model_copy, "model_copy");
  }
  if (state_count != 0 && state_count != slots) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "state_count", "is %d, but this optimizer has %d state slots", state_count, slots);
  }
  for (int32_t s = 0; s < state_count; ++s) {
    // A kind has at most kMaxStates slots, which the analyzer cannot see.
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage)
    require_usable(*lists.state[s], context, kState.at(s));
    const Plan &state = lists.state[s]->plan();
    require_same_shapes(*lists.params, state, kState.at(s));
    for (int64_t i = 0; i < state.size(); ++i) {
      if (state.tensor(i).dtype != state_dtype(params.tensor(i).dtype)) {
        fail(GSC_ERROR_INVALID_ARGUMENT, kState.at(s).tensor(i),
             "is %s, but the state of a parameter of dtype %s is %s%s", dtype_name(state.tensor(i).dtype),
             dtype_name(params.tensor(i).dtype), dtype_name(state_dtype(params.tensor(i).dtype)),
             NameSuffix(&lists.params->names(), i).c_str());
      }
    }
    overlap.add(*lists.state[s], kState.at(s));
  }
  overlap.run();
}

}  // namespace

int32_t Optimizer::slots_of(const gsc_optimizer_options &options) { return gsc::state_count(variant_of(options)); }

Ref<Optimizer> Optimizer::create(const Ref<Context> &context, const gsc_optimizer_options &options, Lists lists,
                                 int32_t state_count) {
  validate(options);
  validate_lists(context, lists, state_count, slots_of(options));
  return context->make<Optimizer>(context, options, std::move(lists));
}

Optimizer::Optimizer(Ref<Context> context, const gsc_optimizer_options &options, Lists lists)
    : Object(kTag),
      context_(std::move(context)),
      lists_(std::move(lists)),
      variant_(variant_of(options)),
      slot_count_(gsc::state_count(variant_)),
      first_sum_(options.initial_accumulator_value),
      options_(1, options, context_->memory()),
      device_lrs_(1, nullptr, context_->memory()),
      group_of_(static_cast<std::size_t>(lists_.params->plan().size()), 0, context_->memory()),
      record_(context_->backend(), sizeof(OptimizerRecord)) {
  Backend &backend = context_->backend();
  const int64_t tensors = lists_.params->plan().size();
  if (slot_count_ > 0 && !lists_.state[0]) make_state();
  if (needs_norms(variant_)) ratios_ = DeviceMemory(backend, tensors * static_cast<int64_t>(sizeof(double)));
  device_group_of_ = DeviceMemory(backend, tensors * static_cast<int64_t>(sizeof(int32_t)));
  groups_ = DeviceMemory(backend, sizeof(GroupRecord));
  coefficients_ = make_coefficients(1, false);
  upload_groups();
  // Last, because it changes the caller's lists.
  converts_gradients_ = converts_gradients();
  if (converts_gradients_) lists_.grads->plan().add_fp32_optimizers(1);
  const std::lock_guard lock(context_->uses_mutex());
  ListUse *use = uses_;
  for_each_list([&](TensorList &list, const Argument &) {
    *use = {&list, this};
    list.add_use(*use++);
  });
}

Optimizer::~Optimizer() {
  if (converts_gradients_) lists_.grads->plan().add_fp32_optimizers(-1);
  const std::lock_guard lock(context_->uses_mutex());
  for (ListUse &use : uses_) {
    if (use.list != nullptr) use.list->remove_use(use);
  }
}

CallStream Optimizer::begin(gsc_stream stream) const {
  const CallStream call(context_->backend(), stream);
  grads().precede(call);
  return call;
}

void Optimizer::require_no_overlap(const OverlapCheck &addresses, const TensorList &changed) const {
  for_each_list([&](const TensorList &list, const Argument &name) {
    if (&list != &changed) addresses.run_against(list, name);
  });
}

bool Optimizer::converts_gradients() const {
  const Plan &grads = lists_.grads->plan();
  for (int64_t i = 0; i < grads.size(); ++i) {
    if (is_wide(grads.tensor(i).dtype) && !is_wide(lists_.params->plan().tensor(i).dtype)) return true;
  }
  return false;
}

void Optimizer::make_state() {
  const Plan &params = lists_.params->plan();
  // A tensor's state begins as many elements past a cache line as its parameters do: then packs of elements are aligned
  // in all arrays or in none, and neighbours in memory have neighbouring state.
  const auto place = [](const Tensor &param, int64_t offset) {
    const int64_t size = dtype_bytes(param.dtype);
    const int64_t state_size = dtype_bytes(state_dtype(param.dtype));
    // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): validated dtypes have a size
    const int64_t period = 64 / size * state_size;
    const int64_t past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(param.data) % 64) / size * state_size;
    return offset + (past + period - offset % period) % period;
  };
  Vec<gsc_tensor> tensors(context_->memory());
  tensors.reserve(static_cast<std::size_t>(params.size()));
  Vec<int64_t> begins(context_->memory());
  begins.reserve(static_cast<std::size_t>(params.size()));
  int64_t slot_bytes = 0;
  for (int64_t i = 0; i < params.size(); ++i) {
    const Tensor &param = params.tensor(i);
    const int32_t dtype = state_dtype(param.dtype);
    begins.push_back(place(param, slot_bytes));
    tensors.push_back(GSC_TENSOR_INIT(nullptr, param.count, dtype));
    slot_bytes = begins.back() + param.count * dtype_bytes(dtype);
  }
  slot_bytes = (slot_bytes + 63) & ~int64_t{63};
  for (int32_t slot = 0; slot < slot_count_; ++slot) {
    DeviceMemory memory(context_->backend(), slot_bytes);
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].data = memory.as<char>() + begins[i];
    // The list owns it, since another optimizer may take the list up and outlive this one.
    lists_.state[slot] = context_->make<TensorList>(context_, tensors.data(), params.size(), Names(context_->memory()),
                                                    std::move(memory));
  }
  made_state_ = true;
  if (options_[0].initial_accumulator_value != 0.0) fill_first_state(0, params.size(), options_[0]);
}

void Optimizer::fill_first_state(int64_t first, int64_t count, const gsc_optimizer_options &options) {
  if (variant_ != Variant::kAdagrad) return;
  Vec<gsc_tensor> sums(context_->memory());
  sums.reserve(static_cast<std::size_t>(count));
  for (int64_t i = first; i < first + count; ++i) sums.push_back(lists_.state[0]->at(i));
  Backend &backend = context_->backend();
  Plan plan(context_->memory());
  plan.build(sums.data(), count, backend.wanted_tasks());
  backend.elementwise({Elementwise::kFill, nullptr, &plan, options.initial_accumulator_value, 0.0, nullptr},
                      backend.setup_stream());
  backend.finish_setup();
}

}  // namespace gsc
