// SPDX-License-Identifier: Apache-2.0
// Making, naming and moving tensor lists.
#include "core/objects/tensor_list.h"

#include <algorithm>
#include <utility>

#include "core/base/decimal.h"
#include "core/base/error.h"
#include "core/device/validate.h"
#include "core/objects/optimizer.h"
#include "core/objects/stored_state.h"

namespace gsc {

Vec<gsc_tensor> TensorList::scales_of(const gsc_tensor *tensors, int64_t count, std::pmr::memory_resource *memory) {
  Vec<gsc_tensor> scales(memory);
  const auto has_scales = [](const gsc_tensor &t) { return t.scale != nullptr; };
  if (std::none_of(tensors, tensors + count, has_scales)) return scales;
  scales.reserve(count);
  for (int64_t i = 0; i < count; ++i) scales.push_back(gsc::scales_of(tensors[i]));
  return scales;
}

Ref<TensorList> TensorList::create(const Ref<Context> &context, const gsc_tensor *tensors, int64_t count,
                                   const char *const *names) {
  validate_tensor_count(count);
  Names copied(context->memory());
  if (names != nullptr && count > 0) {
    copied.reserve(count);
    for (int64_t i = 0; i < count; ++i) copied.emplace_back(names[i] != nullptr ? names[i] : "");
  }
  validate_tensors(tensors, count, "tensors", StateDtypes::kAccepted, &copied);
  validate_memory(context->backend(), tensors, count, "tensors");
  OverlapCheck overlap(context->memory());
  overlap.add(tensors, count, "tensors", &copied);
  overlap.run();
  return context->make<TensorList>(context, tensors, count, scales_of(tensors, count, context->memory()),
                                   std::move(copied));
}

TensorList::TensorList(Ref<Context> context, const gsc_tensor *tensors, int64_t count, const Vec<gsc_tensor> &scales,
                       Names names, DeviceMemory owned)
    : Object(kTag),
      iteration(context->memory()),
      context_(std::move(context)),
      owned_(std::move(owned)),
      plan_(context_->memory()),
      names_(std::move(names)),
      record_(context_->backend(), sizeof(ListRecord)),
      moved_(context_->memory()),
      addresses_(context_->memory()),
      overlap_(context_->memory()),
      order_(*context_) {
  plan_.build(tensors, count, context_->backend().wanted_tasks());
  plan_.need_partials();
  holds_state_ = std::any_of(tensors, tensors + count, [](const gsc_tensor &t) { return !is_element_dtype(t.dtype); });
  iteration.reserve(count);
  if (!scales.empty()) {
    const Vec<gsc_tensor> none(context_->memory());
    scales_ = context_->make<TensorList>(context_, scales.data(), count, none, Names(context_->memory()));
  }
  context_->backend().bind(plan_);
}

TensorList::~TensorList() {
  Backend &backend = context_->backend();
  try {  // A scaler's device may still have to read the record, which is freed when this device has no work left.
    CallStream setup(*context_, backend.setup_stream());
    other_context.read.precede(setup);
  } catch (...) {  // NOLINT(bugprone-empty-catch): a device that fails runs nothing more
  }
  order_.precede_release();
  other_context = OtherContext{};
  backend.unbind(plan_);
}

void TensorList::require_count(int64_t count) const {
  if (count != plan_.size()) {
    refuse("count", "is %lld, but the list has %lld tensors", static_cast<long long>(count),
           static_cast<long long>(plan_.size()));
  }
}

void TensorList::require_no_owner() {
  if (owner() != 0) {
    fail(GSC_ERROR_BAD_STATE, "list", "has been used by a scaler since its last update; call update or discard first");
  }
}

void TensorList::set_device_factor(const float *factor) {
  require_no_owner();
  require_no_slices("list");
  device_factor_ = factor;
}

void TensorList::require_device_factor(const Argument &what) const {
  if (device_factor_ == nullptr || !context_->backend().host_visible() || is_multiplier(*device_factor_)) return;
  refuse(what, "has gradients with a device factor of %s; it must be finite and >= 0",
         Decimal(*device_factor_).c_str());
}

void TensorList::set_device_norms(double *norms, int64_t count) {
  require_count(count);
  require_no_owner();
  require_no_slices("list");
  device_norms_ = norms;
}

void TensorList::set_pointers(void *const *data, int64_t count, gsc_stream stream) {
  require_count(count);
  if (count > 0 && data == nullptr) refuse("data", "is NULL");
  require_no_owner();
  move([this](int64_t i) { return !plan_.is_absent(i); }, data, stream, [&] { plan_.rebind(data); });
}

void TensorList::set_present(const uint8_t *present, void *const *data, int64_t count, gsc_stream stream) {
  require_count(count);
  require_no_owner();
  {
    const std::lock_guard lock(context_->uses_mutex());
    for (const ListUse *use = first_use(); use != nullptr; use = use->next) {
      if (&use->user->grads() != this) {
        fail(GSC_ERROR_BAD_STATE, "list",
             "has the parameters, copies or state of an optimizer, which are always present; pass its gradients");
      }
    }
  }
  plan_.reserve_absent();
  const auto is_present = [&](int64_t i) { return present == nullptr || present[i] != 0 || plan_.bound(i).count == 0; };
  for (int64_t i = 0; data == nullptr && i < count; ++i) {
    if (!is_present(i) || plan_.bound(i).count == 0 || plan_.bound(i).data != nullptr) continue;
    refuse(Argument("present").without_fields().tensor(i),
           "is not 0, but the tensor was absent and has no address; pass data%s", NameSuffix(&names_, i).c_str());
  }
  move(is_present, data, stream, [&] { plan_.set_present(present, data); });
}

template <typename P, typename F>
void TensorList::move(const P &is_present, void *const *data, gsc_stream stream, const F &commit) {
  const int64_t count = plan_.size();
  moved_.clear();
  addresses_.clear();
  overlap_.clear();
  moved_.reserve(count);
  addresses_.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    const Tensor &t = plan_.bound(i);
    void *const address = data != nullptr ? data[i] : t.data;
    const bool is_nowhere = address == nullptr && !is_present(i);
    moved_.push_back(is_nowhere ? gsc_tensor GSC_TENSOR_INIT(nullptr, 0, t.dtype) : at(i));
    moved_.back().data = address;
    addresses_.push_back(is_present(i) ? address : nullptr);
  }
  if (data != nullptr) {
    constexpr Argument kData = Argument("data").without_fields();
    validate_tensors(moved_.data(), count, kData, StateDtypes::kAccepted, &names_);
    context_->backend().validate_memory(moved_.data(), count, kData);
    overlap_.add(moved_.data(), count, kData, &names_);
    overlap_.run();
  }
  require_no_slices("list");
  CallStream call(*context_, stream);
  const std::lock_guard lock(context_->uses_mutex());
  for (const ListUse *use = first_use(); use != nullptr; use = use->next) {
    if (use->user->is_in_call()) fail(GSC_ERROR_BAD_STATE, "list", "is in use by a step that has not returned");
    if (data != nullptr) use->user->require_no_overlap(overlap_, *this);
  }
  order_.use(call);
  call.backend.rebind(plan_, addresses_.data(), call.stream());
  commit();
  call.mark();
}

void TensorList::require_index(int64_t index) const {
  if (index < 0 || index >= plan_.size()) {
    refuse("index", "is %lld, but the list has %lld tensors", static_cast<long long>(index),
           static_cast<long long>(plan_.size()));
  }
}

const char *TensorList::name(int64_t index) const {
  require_index(index);
  return names_.empty() ? "" : names_[index].c_str();
}

NormAverage TensorList::read_norms(gsc_stream stream) const {
  NormAverage norms;
  context_->backend().read_sync(&norms, &record()->after, sizeof norms, stream);
  return norms;
}

void TensorList::write_norms(const NormAverage &norms, gsc_stream stream) {
  constexpr int64_t kNever = -1;  // the next check takes them over
  context_->backend().write_sync(&record()->after, &norms, sizeof norms, stream);
  context_->backend().write_sync(&record()->judged_at, &kNever, sizeof kNever, stream);
}

gsc_tensor TensorList::at(int64_t index) const {
  require_index(index);
  const Tensor &t = plan_.bound(index);
  gsc_tensor tensor = GSC_TENSOR_INIT(t.data, t.count, t.dtype);
  set_scales(tensor, scales_ ? scales()->tensor(index).data : nullptr);
  return tensor;
}

void TensorList::require_elements(const Argument &what) const {
  for (int64_t i = 0; holds_state_ && i < plan_.size(); ++i) {
    const int32_t dtype = plan_.bound(i).dtype;
    if (is_element_dtype(dtype)) continue;
    refuse(what.tensor(i), "is of dtype %s, which only optimizer state may have%s", dtype_name(dtype),
           NameSuffix(&names_, i).c_str());
  }
}

void TensorList::add_use(ListUse &use) {
  use.next = uses_;
  use.place = &uses_;
  if (uses_ != nullptr) uses_->place = &use.next;
  uses_ = &use;
}

void TensorList::remove_use(ListUse &use) noexcept {
  *use.place = use.next;
  if (use.next != nullptr) use.next->place = use.place;
}

void TensorList::require_no_slices(const Argument &what, Named named) const {
  if (slices() == 0) return;
  fail(GSC_ERROR_BAD_STATE, what,
       "%s between the slices of a step; call gsc_scaler_step_slice until nothing is left, or discard the step's "
       "gradients",
       named == Named::kItself ? "is" : "has a list that is");
}

void TensorList::cancel_slices() noexcept {
  const uint64_t id = iteration.slices();
  if (id == 0) return;
  const std::lock_guard lock(context_->uses_mutex());
  for (const ListUse *use = first_use(); use != nullptr; use = use->next) use->user->end_slices(id);
}

uint64_t TensorList::owner() {
  const uint64_t scaler = iteration.scaler();
  if (scaler != 0 && scaler == abandoned_by_.load(std::memory_order_acquire)) iteration.end();
  return iteration.scaler();
}

}  // namespace gsc
