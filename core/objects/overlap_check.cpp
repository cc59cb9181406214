// SPDX-License-Identifier: Apache-2.0
#include "core/objects/overlap_check.h"

#include <algorithm>

#include "core/objects/stored_state.h"
#include "core/objects/tensor_list.h"

namespace gsc {

TensorMemory::TensorMemory(const gsc_tensor &tensor)
    : elements(tensor.data, tensor.data != nullptr ? tensor.count * dtype_bytes(tensor.dtype) : 0), scales(nullptr, 0) {
  const gsc_tensor of = scales_of(tensor);
  scales = Memory(of.data, of.count * dtype_bytes(of.dtype));
}

void validate_memory(Backend &backend, const gsc_tensor *tensors, int64_t count, const Argument &what) {
  backend.validate_memory(tensors, count, what);
  for (int64_t i = 0; i < count; ++i) {
    const gsc_tensor scales = scales_of(tensors[i]);
    if (scales.count > 0) backend.validate_memory(&scales, 1, what.from(i));
  }
}

template <typename F>
void OverlapCheck::add_all(const F &tensor_at, int64_t count, const Argument &what, const Names *names) {
  sources_.push_back({what, names});
  spans_.reserve(spans_.size() + static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const gsc_tensor &t = tensor_at(i);
    const auto bytes = static_cast<uint64_t>(t.count * dtype_bytes(t.dtype));
    if (t.data != nullptr && bytes > UINTPTR_MAX - reinterpret_cast<uintptr_t>(t.data)) {  // NULL: absent
      refuse(what.tensor(i).field("count"), "is %lld: data + count is beyond the address space%s",
             static_cast<long long>(t.count), NameSuffix(names, i).c_str());
    }
    const TensorMemory memory(t);
    add_span(memory.elements, i, false);
    add_span(memory.scales, i, true);
  }
}

void OverlapCheck::add_span(const Memory &memory, int64_t index, bool is_scales) {
  if (memory.begin == memory.end) return;
  spans_.push_back(
      {memory.begin, memory.end, static_cast<int32_t>(index), static_cast<int32_t>(sources_.size()) - 1, is_scales});
}

void OverlapCheck::add(const gsc_tensor *tensors, int64_t count, const Argument &what, const Names *names) {
  add_all([&](int64_t i) -> const gsc_tensor & { return tensors[i]; }, count, what, names);
}

void OverlapCheck::add(const TensorList &list, const Argument &what) {
  add_all([&](int64_t i) { return list.at(i); }, list.plan().size(), what, &list.names());
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
  run_against(list.plan(), of_list, false);
  if (const Plan *scales = list.scales()) run_against(*scales, of_list, true);
}

void OverlapCheck::run_against(const Plan &plan, const Source &of_list, bool is_scales) const {
  std::size_t after = 0;  // the first span that begins at the end of the tensor or later
  for (int64_t i = 0; i < plan.size(); ++i) {
    const Tensor &t = plan.bound(i);
    if (t.count == 0 || t.data == nullptr) continue;
    const Memory memory(t.data, t.count * dtype_bytes(t.dtype));
    const Span other{memory.begin, memory.end, static_cast<int32_t>(i), 0, is_scales};
    // Usually the same place as for the previous tensor, or the next one.
    if (after < spans_.size() && spans_[after].begin < other.end) ++after;
    if ((after < spans_.size() && spans_[after].begin < other.end) ||
        (after > 0 && spans_[after - 1].begin >= other.end)) {
      after =
          static_cast<std::size_t>(std::lower_bound(spans_.begin(), spans_.end(), other.end,
                                                    [](const Span &span, uintptr_t end) { return span.begin < end; }) -
                                   spans_.begin());
    }
    // Only the last span that begins before the end of `other` can reach into it.
    if (after > 0 && spans_[after - 1].end > other.begin) {
      fail_on(source(spans_[after - 1]), spans_[after - 1], of_list, other);
    }
  }
}

void OverlapCheck::fail_on(const Source &a_source, const Span &a, const Source &b_source, const Span &b) {
  const NameSuffix name(a_source.names, a.index);
  if (&a_source == &b_source && a.index == b.index) {
    refuse(a_source.what.tensor(a.index), "overlaps its own scales in memory%s", name.c_str());
  }
  refuse(a_source.what.tensor(a.index), "%s%s%s%s in memory%s", a.is_scales ? "has scales that overlap " : "overlaps ",
         b.is_scales ? "the scales of " : "", b_source.what.tensor(b.index).text().c_str(),
         NameSuffix(b_source.names, b.index).c_str(), name.c_str());
}

}  // namespace gsc
