// SPDX-License-Identifier: Apache-2.0
//
// Bad input to the stateless operations: null words, bad tensors in every list argument, and lists that do not match.
// The results of the operations are in elementwise_test.cpp and check_test.cpp.
#include "tests/support/objects.h"

namespace gsc_test {
namespace {

class BadInputOps : public ::testing::Test {
 protected:
  BadInputOps()
      : context_(make_context()), a_(make_buffers(GSC_FP32, {4, 4, 4})), b_(make_buffers(GSC_FP16, {4, 4, 4})) {
    for (Buffer &buffer : a_) buffer.fill(3.0);
    for (Buffer &buffer : b_) buffer.fill(3.0);
  }

  using Call = std::function<gsc_status(gsc_context *, const gsc_tensor *, const gsc_tensor *, int64_t)>;

  /// Bad context, arrays, count and tensors for an operation of two lists (or one: `second` null).
  void expect_tensors_checked(const Call &call, const char *first, const char *second) {
    const std::vector<gsc_tensor> a = tensors_of(a_), b = tensors_of(b_);
    EXPECT_INVALID(call(nullptr, a.data(), b.data(), 3), "context");
    EXPECT_INVALID(call(context_, nullptr, b.data(), 3), first);
    EXPECT_INVALID(call(context_, a.data(), b.data(), -1), "count");
    const std::vector<std::function<void(gsc_tensor &)>> spoils = {
        [](gsc_tensor &t) { t.data = nullptr; }, [](gsc_tensor &t) { t.count = -1; },
        [](gsc_tensor &t) { t.dtype = 0; },
        [](gsc_tensor &t) { t.data = static_cast<unsigned char *>(t.data) + 1, t.count = 1; },
        [](gsc_tensor &t) { t.dtype = 99; }};
    for (const auto &spoil : spoils) {
      std::vector<gsc_tensor> wrong = a;
      spoil(wrong[2]);
      EXPECT_INVALID(call(context_, wrong.data(), b.data(), 3), text(first, "[2]").c_str());
      if (second == nullptr) continue;
      wrong = b;
      spoil(wrong[1]);
      EXPECT_INVALID(call(context_, a.data(), wrong.data(), 3), text(second, "[1]").c_str());
    }
    if (second != nullptr) {
      EXPECT_INVALID(call(context_, a.data(), nullptr, 3), second);
      std::vector<gsc_tensor> shorter = b;
      shorter[2].count = 3;
      EXPECT_INVALID(call(context_, a.data(), shorter.data(), 3), "[2]");
    }
    for (const auto *buffers : {&a_, &b_}) {
      for (const Buffer &buffer : *buffers) {
        for (const double value : buffer.values()) EXPECT_EQ(value, 3.0) << "tensors of a refused call are untouched";
      }
    }
    EXPECT_GSC_OK(call(context_, nullptr, nullptr, 0)) << "no tensors, nothing to do";
  }

  Context context_;
  std::vector<Buffer> a_, b_;
};

TEST_F(BadInputOps, Scale) {
  const float factor = 2.0f;
  expect_tensors_checked([&](auto c, auto x, auto y, auto n) { return gsc_ops_scale(c, x, y, n, &factor, nullptr); },
                         "src", "dst");
  const std::vector<gsc_tensor> a = tensors_of(a_);
  EXPECT_INVALID(gsc_ops_scale(context_, a.data(), a.data(), 3, nullptr, nullptr), "factor");
}

TEST_F(BadInputOps, Cast) {
  expect_tensors_checked([&](auto c, auto x, auto y, auto n) { return gsc_ops_cast(c, x, y, n, nullptr); }, "src",
                         "dst");
}

TEST_F(BadInputOps, OnlyTheDtypesOfElementsAreNamed) {
  std::vector<gsc_tensor> a = tensors_of(a_);
  const std::vector<gsc_tensor> b = tensors_of(b_);
  a[1].dtype = 99;
  EXPECT_INVALID(gsc_ops_cast(context_, a.data(), b.data(), 3, nullptr), "src[1].dtype is 99",
                 "it must be GSC_FP16, GSC_BF16, GSC_FP32 or GSC_FP64");
  const std::string message = gsc_error_get_message();
  EXPECT_EQ(message.find("E4M3"), std::string::npos) << message;
}

TEST_F(BadInputOps, Axpby) {
  expect_tensors_checked([&](auto c, auto x, auto y, auto n) { return gsc_ops_axpby(c, 2.0, x, 3.0, y, n, nullptr); },
                         "x", "y");
}

TEST_F(BadInputOps, Norm) {
  double norm = -7.0;
  expect_tensors_checked(
      [&](auto c, auto x, auto, auto n) { return gsc_ops_norm(c, x, n, GSC_NORM_L2, &norm, nullptr, nullptr); },
      "tensors", nullptr);
  EXPECT_EQ(norm, 0.0) << "the norm of no tensors";
  norm = -7.0;
  const std::vector<gsc_tensor> a = tensors_of(a_);
  for (const int32_t type : {0, 1, 4, -1}) {
    EXPECT_INVALID(gsc_ops_norm(context_, a.data(), 3, type, &norm, nullptr, nullptr), "norm_type");
  }
  EXPECT_INVALID(gsc_ops_norm(context_, a.data(), 3, GSC_NORM_L2, nullptr, nullptr, nullptr), "out_norm");
  EXPECT_EQ(norm, -7.0);
}

TEST_F(BadInputOps, UnscaleCheck) {
  float found_inf = 0.0f;
  const float inverse = 0.5f;
  expect_tensors_checked(
      [&](auto c, auto x, auto, auto n) { return gsc_ops_unscale_check(c, x, n, &found_inf, &inverse, nullptr); },
      "tensors", nullptr);
  const std::vector<gsc_tensor> a = tensors_of(a_);
  EXPECT_INVALID(gsc_ops_unscale_check(context_, a.data(), 3, nullptr, &inverse, nullptr), "found_inf");
  EXPECT_INVALID(gsc_ops_unscale_check(context_, a.data(), 3, &found_inf, nullptr, nullptr), "inv_scale");
  EXPECT_EQ(found_inf, 0.0f);
}

TEST_F(BadInputOps, UpdateScale) {
  float scale = 4.0f, found_inf = 0.0f;
  int32_t tracker = 1;
  gsc_context *const c = context_;
  EXPECT_INVALID(gsc_ops_update_scale(nullptr, &scale, &tracker, &found_inf, 2.0, 0.5, 2, nullptr), "context");
  EXPECT_INVALID(gsc_ops_update_scale(c, nullptr, &tracker, &found_inf, 2.0, 0.5, 2, nullptr), "scale");
  EXPECT_INVALID(gsc_ops_update_scale(c, &scale, nullptr, &found_inf, 2.0, 0.5, 2, nullptr), "growth_tracker");
  EXPECT_INVALID(gsc_ops_update_scale(c, &scale, &tracker, nullptr, 2.0, 0.5, 2, nullptr), "found_inf");
  for (const double v : {1.0, -1.0, kNan, kInf}) {
    EXPECT_INVALID(gsc_ops_update_scale(c, &scale, &tracker, &found_inf, v, 0.5, 2, nullptr), "growth_factor",
                   "finite and > 1");
  }
  for (const double v : {0.0, 1.0, -1.0, kNan}) {
    EXPECT_INVALID(gsc_ops_update_scale(c, &scale, &tracker, &found_inf, 2.0, v, 2, nullptr), "backoff_factor");
  }
  for (const int32_t v : {0, -1}) {
    EXPECT_INVALID(gsc_ops_update_scale(c, &scale, &tracker, &found_inf, 2.0, 0.5, v, nullptr), "growth_interval");
  }
  EXPECT_EQ(scale, 4.0f);
  EXPECT_EQ(tracker, 1);
}

}  // namespace
}  // namespace gsc_test
