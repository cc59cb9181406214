// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_CPP_TENSOR_LIST_HPP
#define GRADSCALER_CPP_TENSOR_LIST_HPP
//
// Buffers and lists of them: gradscaler::tensor makes a gsc_tensor from a span, TensorList owns a gsc_tensor_list,
// TensorListRef borrows one. Contracts are those of gradscaler.h. Include <gradscaler/gradscaler.hpp>.
//
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <gradscaler/cpp/context.hpp>
#include <initializer_list>
#include <iterator>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace gradscaler {

/// A buffer, as the C struct.
using Tensor = gsc_tensor;

/// `count` elements of `dtype` at `data`, in memory of any device.
inline Tensor tensor(void *data, int64_t count, DType dtype) noexcept {
  return GSC_TENSOR_INIT(data, count, static_cast<int32_t>(dtype));
}
inline Tensor tensor(std::span<float> data) noexcept { return tensor(data.data(), std::ssize(data), DType::fp32); }
inline Tensor tensor(std::span<double> data) noexcept { return tensor(data.data(), std::ssize(data), DType::fp64); }

/// A contiguous writable range of a plain 2-byte type: uint16_t, _Float16, your half.
template <typename Range>
concept HalfRange =
    std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> && std::ranges::borrowed_range<Range> &&
    std::is_trivially_copyable_v<std::ranges::range_value_t<Range>> &&
    !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Range>>> &&
    sizeof(std::ranges::range_value_t<Range>) == 2;

/// dtype is fp16 or bf16.
template <HalfRange Range>
Tensor tensor(Range &&data, DType dtype) {
  if (dtype != DType::fp16 && dtype != DType::bf16) {
    detail::bad_argument("tensor: a 2-byte type is fp16 or bf16");
    return Tensor{};  // which the library refuses
  }
  return tensor(std::ranges::data(data), static_cast<int64_t>(std::ranges::size(data)), dtype);
}

/// A contiguous range of tensors: a vector, an array, a span.
template <typename Range>
concept TensorRange = std::ranges::contiguous_range<const Range> && std::ranges::sized_range<const Range> &&
    std::same_as<std::ranges::range_value_t<const Range>, Tensor>;

/// Parameter type: one tensor, several in braces, or a contiguous range of them. Valid only during the call.
class Tensors {
 public:
  Tensors(const Tensor &one) noexcept : data_(&one), count_(1) {}
  Tensors(std::initializer_list<Tensor> several) noexcept : data_(std::data(several)), count_(std::ssize(several)) {}
  template <TensorRange Range>
  Tensors(const Range &several) noexcept : data_(std::ranges::data(several)), count_(std::ssize(several)) {}
  const Tensor *data() const noexcept { return data_; }
  int64_t count() const noexcept { return count_; }

 private:
  const Tensor *data_;
  int64_t count_;
};

namespace detail {

inline int64_t same_count(const char *first_name, Tensors first, const char *second_name, Tensors second) {
  if (first.count() != second.count()) {
    bad_argument(std::string(first_name) + " has " + std::to_string(first.count()) + " tensors, " + second_name +
                 " has " + std::to_string(second.count()));
    return 0;
  }
  return first.count();
}

}  // namespace detail

/// Result of diagnose_sync: one entry per tensor, and GSC_EXPONENT_BINS bins per tensor if requested.
struct Diagnosis {
  std::vector<gsc_tensor_diagnosis> tensors;
  std::vector<int64_t> histogram;
};

namespace detail {

/// Operations on a list, owned or borrowed.
template <typename List>
class ListCalls {
 public:
  int64_t get_count() const { return read(gsc_tensor_list_get_count, list()); }
  Tensor get_tensor(int64_t index) const {
    Tensor tensor{};
    check(gsc_tensor_list_get_tensor(list(), index, &tensor));
    return tensor;
  }
  void set_pointers(std::span<void *const> data, gsc_stream stream = nullptr) {
    check(gsc_tensor_list_set_pointers(list(), data.data(), std::ssize(data), stream));
  }
  /// Steps multiply the gradients by it too. nullptr: no factor.
  void set_device_factor(const float *device_factor) {
    check(gsc_tensor_list_set_device_factor(list(), device_factor));
  }
  /// Checks write the norm of every tensor there, get_count() numbers. nullptr: they are not kept.
  void set_device_norms(double *device_norms) {
    check(gsc_tensor_list_set_device_norms(list(), device_norms, get_count()));
  }
  /// One byte per tensor, 0 for an absent one. `data` is empty or has new addresses.
  void set_present(std::span<const uint8_t> present, std::span<void *const> data = {}, gsc_stream stream = nullptr) {
    if (!data.empty() && data.size() != present.size()) {
      return bad_argument("set_present: present and data have different lengths");
    }
    check(gsc_tensor_list_set_present(list(), present.data(), data.empty() ? nullptr : data.data(), std::ssize(present),
                                      stream));
  }
  std::string get_name(int64_t index) const {
    const char *name = "";
    check(gsc_tensor_list_get_name(list(), index, &name));
    return name;
  }
  Diagnosis diagnose_sync(bool with_histogram = false, gsc_stream stream = nullptr) const {
    Diagnosis result;
    const auto tensors = static_cast<std::size_t>(get_count());
    result.tensors.resize(tensors);
    if (with_histogram) result.histogram.resize(tensors * GSC_EXPONENT_BINS);
    check(gsc_tensor_list_diagnose_sync(list(), result.tensors.data(),
                                        with_histogram ? result.histogram.data() : nullptr,
                                        static_cast<int64_t>(tensors), stream));
    return result;
  }

 private:
  gsc_tensor_list *list() const noexcept { return static_cast<const List *>(this)->get(); }
};

}  // namespace detail

/// A borrowed list; null by default. Copied like a pointer.
class TensorListRef : public detail::ListCalls<TensorListRef> {
 public:
  TensorListRef(gsc_tensor_list *list = nullptr) noexcept : list_(list) {}
  gsc_tensor_list *get() const noexcept { return list_; }

 private:
  gsc_tensor_list *list_;
};

/// A validated plan over the caller's buffers. Passes as a TensorListRef.
class TensorList : public detail::Handle<gsc_tensor_list>, public detail::ListCalls<TensorList> {
 public:
  /// `names`: empty, or one for each tensor (nullptr for none); copied.
  TensorList(const Context &context, Tensors tensors, std::span<const char *const> names = {}) {
    if (!names.empty() && std::ssize(names) != tensors.count()) {
      detail::bad_argument(std::to_string(names.size()) + " names for " + std::to_string(tensors.count()) + " tensors");
      return;
    }
    gsc_tensor_list *made = nullptr;
    detail::check(gsc_tensor_list_create(context.get(), tensors.data(), tensors.count(),
                                         names.empty() ? nullptr : names.data(), &made));
    take(made);
  }
  static TensorList adopt(gsc_tensor_list *object) noexcept { return TensorList(object, detail::Adopt{}); }
  /// Fails if there is no list: to some calls a null reference means all lists. No failure handler can go on then.
  operator TensorListRef() const {
    if (get() == nullptr) {
      detail::bad_argument("the TensorList was not made, moved from or released");
      std::abort();
    }
    return TensorListRef(get());
  }

 private:
  TensorList(gsc_tensor_list *object, detail::Adopt) noexcept : Handle(object) {}
};

struct Recommendation {
  float scale;
  /// Share (0..1) of the values that would still be flushed to zero.
  double flushed;
};
/// `histogram`: of one tensor, GSC_EXPONENT_BINS bins.
inline Recommendation histogram_recommend_scale(std::span<const int64_t> histogram, float current_scale, DType dtype) {
  Recommendation result{};
  detail::check(gsc_histogram_recommend_scale(histogram.data(), std::ssize(histogram), current_scale,
                                              static_cast<int32_t>(dtype), &result.scale, &result.flushed));
  return result;
}

}  // namespace gradscaler

#endif  // GRADSCALER_CPP_TENSOR_LIST_HPP
