// SPDX-License-Identifier: Apache-2.0
//
// Every function of gradscaler::ops once, with an effect that shows that it arrived.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <gradscaler/gradscaler.hpp>
#include <vector>

namespace gradscaler {
namespace {

using Floats = std::vector<float>;

TEST(Ops, UnscaleCheckAndUpdateScale) {
  const Context context;
  Floats a = {2.0f, 4.0f};
  float found_inf = 0.0f, inv_scale = 0.5f, scale = 2.0f;
  int32_t tracker = 0;
  ops::unscale_check(context, tensor(a), &found_inf, &inv_scale);
  EXPECT_EQ(a, (Floats{1.0f, 2.0f}));
  EXPECT_EQ(found_inf, 0.0f);
  ops::update_scale(context, &scale, &tracker, &found_inf, 2.0, 0.5, 1);
  EXPECT_EQ(scale, 4.0f);
  a[0] = INFINITY;
  ops::unscale_check(context, tensor(a), &found_inf, &inv_scale);
  EXPECT_EQ(found_inf, 1.0f);
  ops::update_scale(context, &scale, &tracker, &found_inf, 2.0, 0.5, 1);
  EXPECT_EQ(scale, 2.0f);
  EXPECT_THROW(ops::update_scale(context, &scale, &tracker, &found_inf, 1.0, 0.5, 1), Error);
}

TEST(Ops, ScaleAxpbyAndCast) {
  const Context context;
  Floats a = {1.0f, 2.0f}, b(2);
  std::vector<uint16_t> halfs(2);
  const float factor = 3.0f;
  ops::scale(context, tensor(a), tensor(b), &factor);
  EXPECT_EQ(b, (Floats{3.0f, 6.0f}));
  ops::axpby(context, 2.0, tensor(a), 1.0, tensor(b));
  EXPECT_EQ(b, (Floats{5.0f, 10.0f}));
  ops::cast(context, tensor(a), tensor(halfs, DType::bf16));
  EXPECT_EQ(halfs, (std::vector<uint16_t>{0x3f80, 0x4000}));  // 1 and 2 in bfloat16
  EXPECT_THROW(ops::cast(context, {tensor(a), tensor(b)}, tensor(halfs, DType::bf16)), Error) << "2 tensors into 1";
}

TEST(Ops, NormAndZero) {
  const Context context;
  Floats a = {3.0f}, b = {-4.0f};
  double norm = 0.0, each[2] = {};
  ops::norm(context, {tensor(a), tensor(b)}, Norm::l2, &norm, each);
  EXPECT_EQ(norm, 5.0);
  EXPECT_EQ(each[0], 3.0);
  EXPECT_EQ(each[1], 4.0);
  ops::norm(context, {tensor(a), tensor(b)}, Norm::inf, &norm);
  EXPECT_EQ(norm, 4.0);
}

}  // namespace
}  // namespace gradscaler
