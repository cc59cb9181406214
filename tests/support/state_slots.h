// SPDX-License-Identifier: Apache-2.0
//
// State in codes, for the tests of it: the slots of an optimizer, what they decode to, whether they are the codes of
// given values by the rules of core/rules, and a small optimizer that has such state.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/rules/dtypes.h"
#include "core/rules/state_codes.h"
#include "tests/support/objects.h"

namespace gsc_test {

/// The slots of an optimizer, as its lists describe them.
struct Slots {
  std::vector<std::vector<gsc_tensor>> slots;
  explicit Slots(gsc_optimizer *optimizer) {
    int32_t count = 0;
    EXPECT_GSC_OK(gsc_optimizer_get_state_count(optimizer, &count));
    for (int32_t slot = 0; slot < count; ++slot) {
      gsc_tensor_list *list = nullptr;
      EXPECT_GSC_OK(gsc_optimizer_get_state(optimizer, slot, &list, nullptr));
      int64_t tensors = 0;
      EXPECT_GSC_OK(gsc_tensor_list_get_count(list, &tensors));
      slots.emplace_back();
      for (int64_t i = 0; i < tensors; ++i) slots.back().push_back(tensor_at(list, i));
    }
  }
  /// All bytes, of codes and scales.
  Image image() const {
    Image bytes;
    const auto append = [&](const Image &more) { bytes.insert(bytes.end(), more.begin(), more.end()); };
    for (const std::vector<gsc_tensor> &slot : slots) {
      for (const gsc_tensor &t : slot) {
        append(image_of(t));
        const auto *scales = static_cast<const unsigned char *>(t.scale);
        if (scales != nullptr) append({scales, scales + gsc::state_groups(t.count) * gsc::dtype_bytes(t.scale_dtype)});
      }
    }
    return bytes;
  }
};

inline std::vector<float> decode(const gsc_tensor &t) {
  std::vector<float> values(t.count);
  gsc::with_state_code(t.dtype, [&](auto code) {
    using C = decltype(code);
    for (int64_t i = 0; i < t.count; ++i) {
      const uint32_t scale = C::kGrouped ? static_cast<const typename C::Scale *>(t.scale)[i / 32] : 0;
      values[i] = C::decode(static_cast<const typename C::Stored *>(t.data)[i], scale);
    }
  });
  return values;
}

/// Expects the codes and scales of `t` to be the nearest ones of `x`.
inline void expect_nearest(const gsc_tensor &t, const float *x) {
  gsc::with_state_code(t.dtype, [&](auto code) {
    using C = decltype(code);
    for (int64_t group = 0; group < t.count; group += 32) {
      const int64_t end = std::min<int64_t>(group + 32, t.count);
      int32_t largest = 0, smallness = 0;
      for (int64_t i = group; i < end; ++i) {
        const auto magnitude = std::isfinite(x[i]) ? int32_t(gsc::to_bits(std::fabs(x[i]))) : 0;
        largest = std::max(largest, magnitude);
        smallness = std::max(smallness, gsc::smallness_of(magnitude));
      }
      uint32_t scale = 0;
      if constexpr (C::kGrouped) {
        scale = C::scale_for(uint32_t(largest), uint32_t(smallness));
        ASSERT_EQ(static_cast<const typename C::Scale *>(t.scale)[group / 32], scale) << "group " << group / 32;
      }
      for (int64_t i = group; i < end; ++i) {
        ASSERT_EQ(static_cast<const typename C::Stored *>(t.data)[i], C::encode(x[i], scale, gsc::kToNearest))
            << "element " << i << " of " << t.count;
      }
    }
  });
}

/// A few parameters of one dtype with one optimizer, which takes steps on random gradients.
struct Small {
  Small(const Context &context, const gsc_optimizer_options &options, int32_t dtype,
        const std::vector<int64_t> &counts = {100, 7})
      : params(make_buffers(dtype, counts)), grads(make_buffers(GSC_FP32, counts)) {
    Random random(3);
    for (Buffer &p : params) p.fill_random(random, -1.0, 1.0);
    param_list = make_list(context, params);
    grad_list = make_list(context, grads);
    optimizer = make_optimizer(context, options, param_list, grad_list);
  }
  void step(Random &random, double size = 1.0) {
    for (Buffer &g : grads) g.fill_random(random, -size, size);
    ASSERT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
  }
  Image save() const { return saved_image(optimizer); }
  gsc_status load(const Image &image) const { return load_image(optimizer, image); }

  std::vector<Buffer> params, grads;
  List param_list, grad_list;
  Optimizer optimizer;
};

inline gsc_optimizer_options adamw(int32_t state_format, int32_t master_format) {
  gsc_optimizer_options o = optimizer_options(GSC_ADAMW);
  o.state_format = state_format;
  o.master_format = master_format;
  return o;
}

}  // namespace gsc_test
