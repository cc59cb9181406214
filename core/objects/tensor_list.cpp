// SPDX-License-Identifier: Apache-2.0
// Validation, names and rebinding of tensor lists.
#include "core/objects/tensor_list.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/device/validate.h"
#include "core/objects/optimizer.h"

namespace gsc {

template <typename T>
void OverlapCheck::add_all(const T *tensors, int64_t count, const Argument &what, const Names *names) {
  const auto source = static_cast<int32_t>(sources_.size());
  sources_.push_back({what, names});
  spans_.reserve(spans_.size() + static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    if (tensors[i].count == 0 || tensors[i].data == nullptr) continue;  // NULL: absent
    const auto begin = reinterpret_cast<uintptr_t>(tensors[i].data);
    const auto bytes = static_cast<uint64_t>(tensors[i].count * dtype_bytes(tensors[i].dtype));
    if (bytes > UINTPTR_MAX - begin) {
      fail(GSC_ERROR_INVALID_ARGUMENT, what.tensor(i).field("count"),
           "is %lld: data + count is beyond the address space%s", static_cast<long long>(tensors[i].count),
           NameSuffix(names, i).c_str());
    }
    spans_.push_back({begin, begin + static_cast<uintptr_t>(bytes), static_cast<int32_t>(i), source});
  }
}

void OverlapCheck::add(const gsc_tensor *tensors, int64_t count, const Argument &what, const Names *names) {
  add_all(tensors, count, what, names);
}

void OverlapCheck::add(const TensorList &list, const Argument &what) {
  add_all(list.plan().bounds(), list.plan().size(), what, &list.names());
}

void OverlapCheck::run() {
  const auto is_before = [](const Span &a, const Span &b) { return a.begin < b.begin; };
  if (!std::is_sorted(spans_.begin(), spans_.end(), is_before)) std::sort(spans_.begin(), spans_.end(), is_before);
  for (std::size_t i = 1; i < spans_.size(); ++i) {
    const Span &a = spans_[i - 1];
    const Span &b = spans_[i];
    if (b.begin < a.end) fail_on(source(b), b, source(a), a);
  }
}

void OverlapCheck::run_against(const TensorList &list, const Argument &what) const {
  const Source of_list{what, &list.names()};
  std::size_t after = 0;  // the first span that begins at the end of the tensor or later
  for (int64_t i = 0; i < list.plan().size(); ++i) {
    const Tensor &t = list.plan().bound(i);
    if (t.count == 0 || t.data == nullptr) continue;
    const auto begin = reinterpret_cast<uintptr_t>(t.data);
    const Span other{begin, begin + static_cast<uintptr_t>(t.count * dtype_bytes(t.dtype)), static_cast<int32_t>(i), 0};
    // Where it was for the tensor before, or one on, unless the list jumps about.
    if (after < spans_.size() && spans_[after].begin < other.end) ++after;
    if ((after < spans_.size() && spans_[after].begin < other.end) ||
        (after > 0 && spans_[after - 1].begin >= other.end)) {
      after =
          static_cast<std::size_t>(std::lower_bound(spans_.begin(), spans_.end(), other.end,
                                                    [](const Span &span, uintptr_t end) { return span.begin < end; }) -
                                   spans_.begin());
    }
    // The last that begins before the end of `other` is the only one that can reach into it.
    if (after > 0 && spans_[after - 1].end > other.begin) {
      fail_on(source(spans_[after - 1]), spans_[after - 1], of_list, other);
    }
  }
}

void OverlapCheck::fail_on(const Source &a_source, const Span &a, const Source &b_source, const Span &b) {
  fail(GSC_ERROR_INVALID_ARGUMENT, a_source.what.tensor(a.index), "overlaps %s%s in memory%s",
       b_source.what.tensor(b.index).text().c_str(), NameSuffix(b_source.names, b.index).c_str(),
       NameSuffix(a_source.names, a.index).c_str());
}

Ref<TensorList> TensorList::create(const Ref<Context> &context, const gsc_tensor *tensors, int64_t count,
                                   const char *const *names) {
  validate_tensor_count(count);
  Names copied(context->memory());
  if (names != nullptr && count > 0) {
    copied.reserve(static_cast<std::size_t>(count));
    for (int64_t i = 0; i < count; ++i) copied.emplace_back(names[i] != nullptr ? names[i] : "");
  }
  validate_tensors(tensors, count, "tensors", &copied);
  context->backend().validate_memory(tensors, count, "tensors");
  OverlapCheck overlap(context->memory());
  overlap.add(tensors, count, "tensors", &copied);
  overlap.run();
  return context->make<TensorList>(context, tensors, count, std::move(copied));
}

TensorList::TensorList(Ref<Context> context, const gsc_tensor *tensors, int64_t count, Names names, DeviceMemory owned)
    : Object(kTag),
      covered(context->memory()),
      context_(std::move(context)),
      owned_(std::move(owned)),
      plan_(context_->memory()),
      names_(std::move(names)),
      record_(context_->backend(), sizeof(ListRecord)),
      moved_(context_->memory()),
      addresses_(context_->memory()),
      overlap_(context_->memory()),
      order_(context_->backend()) {
  plan_.build(tensors, count, context_->backend().wanted_tasks());
  plan_.need_partials();
  covered.resize(static_cast<std::size_t>(count));
  context_->backend().bind(plan_);
}

TensorList::~TensorList() {
  // First of all: giving back the landing waits for the scaler's device, which may still be reading the record.
  away = Away{};
  context_->backend().unbind(plan_);
}

void TensorList::require_count(int64_t count) const {
  if (count != plan_.size()) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "count", "is %lld, but the list has %lld tensors", static_cast<long long>(count),
         static_cast<long long>(plan_.size()));
  }
}

void TensorList::require_no_owner() {
  if (owner() != 0) {
    fail(GSC_ERROR_BAD_STATE, "list", "has been used by a scaler since its last update; call update or discard first");
  }
}

void TensorList::set_pointers(void *const *data, int64_t count, gsc_stream stream) {
  require_count(count);
  if (count > 0 && data == nullptr) fail(GSC_ERROR_INVALID_ARGUMENT, "data", "is NULL");
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
    fail(GSC_ERROR_INVALID_ARGUMENT, Argument("present").without_fields().tensor(i),
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
  moved_.reserve(static_cast<std::size_t>(count));
  addresses_.reserve(static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const Tensor &t = plan_.bound(i);
    void *const address = data != nullptr ? data[i] : t.data;
    const bool is_nowhere = address == nullptr && !is_present(i);
    moved_.push_back(GSC_TENSOR_INIT(address, is_nowhere ? 0 : t.count, t.dtype));
    addresses_.push_back(is_present(i) ? address : nullptr);
  }
  if (data != nullptr) {
    constexpr Argument kData = Argument("data").without_fields();
    validate_tensors(moved_.data(), count, kData, &names_);
    context_->backend().validate_memory(moved_.data(), count, kData);
    overlap_.add(moved_.data(), count, kData, &names_);
    overlap_.run();
  }
  const CallStream call(context_->backend(), stream);
  const std::lock_guard lock(context_->uses_mutex());
  for (const ListUse *use = first_use(); use != nullptr; use = use->next) {
    if (use->user->is_in_call()) fail(GSC_ERROR_BAD_STATE, "list", "is in use by a step that has not returned");
    if (data != nullptr) use->user->require_no_overlap(overlap_, *this);
    use->user->grads().precede(call);
  }
  precede(call);
  context_->backend().rebind(plan_, addresses_.data(), stream);
  commit();
  mark(call);
}

void TensorList::require_index(int64_t index) const {
  if (index < 0 || index >= plan_.size()) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "index", "is %lld, but the list has %lld tensors", static_cast<long long>(index),
         static_cast<long long>(plan_.size()));
  }
}

const char *TensorList::name(int64_t index) const {
  require_index(index);
  return names_.empty() ? "" : names_[static_cast<std::size_t>(index)].c_str();
}

gsc_tensor TensorList::at(int64_t index) const {
  require_index(index);
  const Tensor &t = plan_.bound(index);
  return GSC_TENSOR_INIT(t.data, t.count, t.dtype);
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

void TensorList::precede(const CallStream &call) const {
  if (call.is_done_on_return()) return;  // without the lock: every step on the CPU comes here for each list
  const std::lock_guard lock(order_mutex_);
  order_.precede(call);
}

void TensorList::mark(const CallStream &call) const {
  if (call.is_done_on_return()) return;
  const std::lock_guard lock(order_mutex_);
  order_.mark(call);
}

uint64_t TensorList::owner() {
  if (iteration.scaler != 0 && iteration.scaler == abandoned_by_.load(std::memory_order_acquire)) reset_iteration();
  return iteration.scaler;
}

void TensorList::reset_iteration() {
  std::fill(covered.begin(), covered.end(), uint8_t{0});
  iteration = Iteration{};
}

}  // namespace gsc
