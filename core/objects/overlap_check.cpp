// SPDX-License-Identifier: Apache-2.0
#include "core/objects/overlap_check.h"

#include <algorithm>

#include "core/objects/tensor_list.h"

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
      refuse(what.tensor(i).field("count"), "is %lld: data + count is beyond the address space%s",
             static_cast<long long>(tensors[i].count), NameSuffix(names, i).c_str());
    }
    spans_.push_back({begin, begin + static_cast<uintptr_t>(bytes), static_cast<int32_t>(i), source});
  }
}

void OverlapCheck::add(const gsc_tensor *tensors, int64_t count, const Argument &what, const Names *names) {
  add_all(tensors, count, what, names);
}

void OverlapCheck::add(const TensorList &list, const Argument &what) {
  add_all(list.plan().bounds(), list.plan().size(), what, &list.names());
  if (const Plan *scales = list.scales()) add_all(scales->bounds(), scales->size(), what, &list.names());
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
  run_against(list.plan(), of_list);
  if (const Plan *scales = list.scales()) run_against(*scales, of_list);
}

void OverlapCheck::run_against(const Plan &plan, const Source &of_list) const {
  std::size_t after = 0;  // the first span that begins at the end of the tensor or later
  for (int64_t i = 0; i < plan.size(); ++i) {
    const Tensor &t = plan.bound(i);
    if (t.count == 0 || t.data == nullptr) continue;
    const auto begin = reinterpret_cast<uintptr_t>(t.data);
    const Span other{begin, begin + static_cast<uintptr_t>(t.count * dtype_bytes(t.dtype)), static_cast<int32_t>(i), 0};
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
  refuse(a_source.what.tensor(a.index), "overlaps %s%s in memory%s", b_source.what.tensor(b.index).text().c_str(),
         NameSuffix(b_source.names, b.index).c_str(), NameSuffix(a_source.names, a.index).c_str());
}

}  // namespace gsc
