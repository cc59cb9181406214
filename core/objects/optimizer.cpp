// SPDX-License-Identifier: Apache-2.0
// Making optimizers: their lists and their state.
#include "core/objects/optimizer.h"

#include <utility>

#include "core/base/error.h"
#include "core/objects/stored_state.h"
#include "core/rules/state_codes.h"

namespace gsc {
namespace {

constexpr Argument kState{"state"};

/// `holds`: of the slot if it is state.
void require_same_shapes(const TensorList &param_list, const Plan &other, const Argument &what,
                         Slot holds = Slot::kMoment) {
  const Plan &params = param_list.plan();
  if (params.size() != other.size()) {
    refuse(what, "has %lld tensors, but params has %lld", static_cast<long long>(other.size()),
           static_cast<long long>(params.size()));
  }
  for (int64_t i = 0; i < params.size(); ++i) {
    const int64_t count = params.tensor(i).count, own = other.tensor(i).count;
    if (own == slot_elements(holds, count)) continue;
    if (numbers_of(holds) > 0) {
      refuse(what.tensor(i), "has %lld elements; this slot has %lld per tensor%s", static_cast<long long>(own),
             static_cast<long long>(slot_elements(holds, count)), NameSuffix(&param_list.names(), i).c_str());
    }
    refuse(what.tensor(i), "has %lld elements, but params[%lld] has %lld%s", static_cast<long long>(own),
           static_cast<long long>(i), static_cast<long long>(count), NameSuffix(&param_list.names(), i).c_str());
  }
}

/// Of this context, and with all its tensors.
void require_usable(const TensorList &list, const Ref<Context> &context, const Argument &what) {
  if (list.context().get() != context.get()) {
    refuse(what, "belongs to another context");
  }
  list.require_no_slices(what);
  const Plan &plan = list.plan();
  for (int64_t i = 0; plan.has_absent() && i < plan.size(); ++i) {
    if (!plan.is_absent(i)) continue;
    refuse(what.tensor(i), "is absent; an optimizer is made while all are present%s",
           NameSuffix(&list.names(), i).c_str());
  }
}

/// Of dtypes that hold what the slot does.
void require_state_dtypes(const TensorList &state_list, const TensorList &param_list, Slot holds,
                          const Argument &what) {
  const Plan &state = state_list.plan();
  for (int64_t i = 0; i < state.size(); ++i) {
    const int32_t param = param_list.plan().tensor(i).dtype;
    const int32_t dtype = state.tensor(i).dtype;
    if (dtype == full_dtype(holds, param)) continue;
    if (!is_wide(param) && is_code_of(dtype, holds)) continue;
    const bool is_code =
        is_state_code(dtype) && !is_wide(param) && (holds == Slot::kMoment || holds == Slot::kSecondMoment);
    refuse(what.tensor(i), "is %s, but the state of a parameter of dtype %s is %s%s%s", dtype_name(dtype),
           dtype_name(param), dtype_name(full_dtype(holds, param)),
           is_code ? (holds == Slot::kMoment ? ", or bf16 or fp8_e4m3 in this slot"
                                             : ", or ufp16_e6m10 or uint8_log in this slot")
                   : "",
           NameSuffix(&param_list.names(), i).c_str());
  }
}

/// Masters and small state need parameters that are computed in fp32, and masters of 16 bits need 16-bit parameters.
void require_formats(const TensorList &param_list, const gsc_optimizer_options &options) {
  const Plan &params = param_list.plan();
  for (int64_t i = 0; i < params.size(); ++i) {
    const int32_t dtype = params.tensor(i).dtype;
    if (options.state_format != GSC_STATE_FULL && is_wide(dtype)) {
      refuse(kOptions.field("state_format"), "is %d, but params[%lld] is fp64, whose state is fp64%s",
             options.state_format, static_cast<long long>(i), NameSuffix(&param_list.names(), i).c_str());
    }
    if (options.master_format != GSC_MASTER_NONE && dtype != GSC_FP16 && dtype != GSC_BF16) {
      refuse(kOptions.field("master_format"), "is %d, but params[%lld] is %s; it needs fp16 or bf16%s",
             options.master_format, static_cast<long long>(i), dtype_name(dtype),
             NameSuffix(&param_list.names(), i).c_str());
    }
  }
}

void validate_lists(const Ref<Context> &context, const Optimizer::Lists &lists, int32_t state_count,
                    const gsc_optimizer_options &options) {
  require_usable(*lists.params, context, "params");
  require_usable(*lists.grads, context, "grads");
  lists.params->require_elements("params");
  lists.grads->require_elements("grads");
  require_formats(*lists.params, options);
  const int32_t slots = Optimizer::slots_of(options);
  const int32_t remainder = gsc::remainder_dtype(options.master_format);
  require_same_shapes(*lists.params, lists.grads->plan(), "grads");
  OverlapCheck overlap(context->memory());
  overlap.add(*lists.params, "params");
  overlap.add(*lists.grads, "grads");
  if (lists.model_copy) {
    require_usable(*lists.model_copy, context, "model_copy");
    lists.model_copy->require_elements("model_copy");
    require_same_shapes(*lists.params, lists.model_copy->plan(), "model_copy");
    overlap.add(*lists.model_copy, "model_copy");
  }
  if (state_count != 0 && state_count != slots) {
    refuse("state_count", "is %d, but this optimizer has %d state slots", state_count, slots);
  }
  for (int32_t s = 0; s < state_count; ++s) {
    // A kind has at most kMaxStates slots, which the analyzer cannot see.
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage)
    require_usable(*lists.state[s], context, kState.at(s));
    const Plan &state = lists.state[s]->plan();
    const bool is_remainder = remainder != 0 && s == slots - 1;
    const Slot holds = Optimizer::slot_holds(options, s);
    require_same_shapes(*lists.params, state, kState.at(s), holds);
    if (!is_remainder) {
      require_state_dtypes(*lists.state[s], *lists.params, holds, kState.at(s));
    } else {
      for (int64_t i = 0; i < state.size(); ++i) {
        if (state.tensor(i).dtype == remainder) continue;
        refuse(kState.at(s).tensor(i), "is %s, but the remainder of this master_format is %s%s",
               dtype_name(state.tensor(i).dtype), dtype_name(remainder), NameSuffix(&lists.params->names(), i).c_str());
      }
    }
    overlap.add(*lists.state[s], kState.at(s));
  }
  overlap.run();
}

}  // namespace

int32_t Optimizer::slots_of(const gsc_optimizer_options &options) {
  return gsc::slot_count(variant_of(options)) + (options.ema_decay > 0.0 ? 1 : 0) +
         (gsc::remainder_dtype(options.master_format) != 0 ? 1 : 0);
}

const char *Optimizer::slot_name(int32_t slot) const {
  const int32_t own = gsc::slot_count(variant_);
  if (slot < own) return traits(variant_).kind.slots[slot].name;
  return slot == own && has_ema() ? "ema" : "remainder";
}

Slot Optimizer::slot_holds(const gsc_optimizer_options &options, int32_t slot) {
  const Variant variant = variant_of(options);
  const int32_t own = gsc::slot_count(variant);
  if (slot < own) return traits(variant).kind.slots[slot].holds;
  return slot == own && options.ema_decay > 0.0 ? Slot::kFull : Slot::kMoment;
}

Ref<Optimizer> Optimizer::create(const Ref<Context> &context, const gsc_optimizer_options &options, Lists lists,
                                 int32_t state_count) {
  validate(options);
  validate_lists(context, lists, state_count, options);
  return context->make<Optimizer>(context, options, std::move(lists));
}

Optimizer::Optimizer(Ref<Context> context, const gsc_optimizer_options &options, Lists lists)
    : Object(kTag),
      context_(std::move(context)),
      lists_(std::move(lists)),
      variant_(variant_of(options)),
      slot_count_(slots_of(options)),
      first_sum_(options.initial_accumulator_value),
      options_(1, options, context_->memory()),
      device_lrs_(1, nullptr, context_->memory()),
      group_of_(static_cast<std::size_t>(lists_.params->plan().size()), 0, context_->memory()),
      record_(context_->backend(), sizeof(OptimizerRecord)),
      replaced_(context_->memory()) {
  Backend &backend = context_->backend();
  const int64_t tensors = lists_.params->plan().size();
  if (slot_count_ > 0 && !lists_.state[0]) make_state();
  if (needs_norms()) ratios_ = DeviceMemory(backend, tensors * int64_t{sizeof(double)});
  device_group_of_ = DeviceMemory(backend, tensors * int64_t{sizeof(int32_t)});
  groups_ = DeviceMemory(backend, sizeof(GroupRecord));
  coefficients_ = make_coefficients(1);
  upload_groups();
  if (is_coded()) upload_offsets();
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
  if (slices.id != 0) end_slices(slices.id);
  grads().order().precede_release();
  if (converts_gradients_) lists_.grads->plan().add_fp32_optimizers(-1);
  const std::lock_guard lock(context_->uses_mutex());
  for (ListUse &use : uses_) {
    if (use.list != nullptr) use.list->remove_use(use);
  }
}

void Optimizer::use(CallStream &call) const {
  if (call.id.is_recorded) recorded_ = true;
  for_each_list([&](const TensorList &list, const Argument &) { list.order().use(call); });
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

bool Optimizer::is_coded() const {
  if (options_[0].master_format != GSC_MASTER_NONE) return true;
  for (int32_t slot = 0; slot < slot_count_; ++slot) {
    const Plan &state = lists_.state[slot]->plan();
    for (int64_t i = 0; i < state.size(); ++i) {
      if (is_state_code(state.tensor(i).dtype)) return true;
    }
  }
  return false;
}

void Optimizer::upload_offsets() {
  const Plan &params = lists_.params->plan();
  Vec<int64_t> offsets(context_->memory());
  offsets.reserve(params.size());
  int64_t elements = 0;
  for (int64_t i = 0; i < params.size(); ++i) {
    offsets.push_back(elements);
    elements += state_groups(params.tensor(i).count) * kStateGroup;
  }
  Backend &backend = context_->backend();
  offsets_ = DeviceMemory(backend, params.size() * int64_t{sizeof(int64_t)});
  if (!offsets.empty()) backend.write(offsets_.as<int64_t>(), offsets.data(), offsets_.bytes(), backend.setup_stream());
  backend.finish_setup();
}

void Optimizer::make_state(int32_t slot) {
  const int32_t remainder = gsc::remainder_dtype(options_[0].master_format);
  const bool is_remainder = remainder != 0 && slot == slot_count_ - 1;
  const auto refuse_memory = [&](const std::exception &cause) {
    fail(GSC_ERROR_OUT_OF_MEMORY, kNoArgument, "there is no memory for the state \"%s\": %s", slot_name(slot),
         cause.what());
  };
  try {
    lists_.state[slot] = make_slot(slot_holds(slot), [&](int32_t param_dtype) {
      if (is_remainder) return remainder;
      return state_dtype(options_[0], slot, slot_holds(slot), param_dtype);
    });
  } catch (const OutOfMemory &e) {
    refuse_memory(e);
  } catch (const Error &e) {
    if (e.details().status != GSC_ERROR_OUT_OF_MEMORY) throw;
    refuse_memory(e);
  }
}

void Optimizer::make_state() {
  for (int32_t slot = 0; slot < slot_count_; ++slot) make_state(slot);
  made_state_ = true;
  const gsc_optimizer_options &options = options_[0];
  if (options.initial_accumulator_value != 0.0) fill_first_state(0, lists_.params->plan().size(), options);
}

template <typename F>
Ref<TensorList> Optimizer::make_slot(Slot holds, const F &dtype_of) const {
  const Plan &params = lists_.params->plan();
  // A tensor's state begins as many elements past a cache line as its parameters do: then packs of elements are aligned
  // in all arrays or in none, and neighbours in memory have neighbouring state.
  const auto place = [](const Tensor &param, int64_t state_size, int64_t offset) {
    const int64_t size = dtype_bytes(param.dtype);
    // NOLINTBEGIN(clang-analyzer-core.DivideZero): validated dtypes have a size
    const int64_t period = 64 / size * state_size;
    const int64_t past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(param.data) % 64) / size * state_size;
    return offset + (past + period - offset % period) % period;
    // NOLINTEND(clang-analyzer-core.DivideZero)
  };
  Vec<gsc_tensor> tensors(context_->memory());
  tensors.reserve(params.size());
  Vec<int64_t> begins(context_->memory());
  begins.reserve(params.size());
  int64_t bytes = 0;
  int64_t scale_bytes = 0;
  for (int64_t i = 0; i < params.size(); ++i) {
    const Tensor &param = params.tensor(i);
    const int32_t dtype = dtype_of(param.dtype);
    const int64_t count = slot_elements(holds, param.count);
    begins.push_back(numbers_of(holds) > 0 ? bytes : place(param, dtype_bytes(dtype), bytes));
    tensors.push_back(GSC_TENSOR_INIT(nullptr, count, dtype));
    bytes = begins.back() + count * dtype_bytes(dtype);
    scale_bytes += state_groups(count) * scale_size(dtype);
  }
  const int64_t scales = (bytes + 63) & ~int64_t{63};
  DeviceMemory memory(context_->backend(), scales + ((scale_bytes + 63) & ~int64_t{63}));
  char *scale = memory.as<char>() + scales;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    gsc_tensor &t = tensors[i];
    t.data = memory.as<char>() + begins[i];
    if (!is_grouped(t.dtype)) continue;
    set_scales(t, t.count > 0 ? scale : nullptr);
    scale += state_groups(t.count) * dtype_bytes(t.scale_dtype);
  }
  // The list owns it, since another optimizer may take the list up and outlive this one.
  return context_->make<TensorList>(context_, tensors.data(), params.size(),
                                    TensorList::scales_of(tensors.data(), params.size(), context_->memory()),
                                    Names(context_->memory()), std::move(memory));
}

void Optimizer::fill_first_state(int64_t first, int64_t count, const gsc_optimizer_options &options) {
  if (variant_ != Variant::kAdagrad) return;
  Backend &backend = context_->backend();
  Vec<gsc_tensor> sums(context_->memory());
  sums.reserve(count);
  int64_t largest = 0;
  for (int64_t i = first; i < first + count; ++i) {
    sums.push_back(lists_.state[0]->at(i));
    largest = std::max(largest, sums.back().count);
  }
  const bool is_coded = options.state_format != GSC_STATE_FULL;
  const DeviceMemory full(backend, is_coded ? largest * int64_t{sizeof(float)} : 0);
  const gsc_tensor values = GSC_TENSOR_INIT(full.as<float>(), largest, GSC_FP32);
  Plan plan(context_->memory());
  plan.build(is_coded ? &values : sums.data(), is_coded ? 1 : count, backend.wanted_tasks());
  const gsc_stream stream = backend.setup_stream();
  backend.elementwise({Elementwise::kFill, nullptr, &plan, options.initial_accumulator_value, 0.0, nullptr}, stream);
  for (std::size_t i = 0; is_coded && i < sums.size(); ++i) {
    backend.convert({array_of(values), {}, array_of(sums[i]), sums[i].count}, stream);
  }
  backend.finish_setup();
}

}  // namespace gsc
