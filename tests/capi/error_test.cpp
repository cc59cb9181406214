// SPDX-License-Identifier: Apache-2.0
// gsc_error: what a failure is about, in fields. That fields and message agree, and that every INVALID_ARGUMENT names
// an argument, EXPECT_GSC_ERROR checks in every suite. This file has what a message does not show, and how long it stays.
#include "tests/support/objects.h"

namespace gsc_test {
namespace {

struct Expected {
  const char *function;
  const char *argument;
  const char *field = "";
  int64_t index = -1;
  int64_t tensor = -1;
};

void expect_last(gsc_status got, gsc_status status, const Expected &expected) {
  SCOPED_TRACE(gsc_error_get_message());
  const gsc_error error = last_error();
  EXPECT_EQ(got, status);
  EXPECT_EQ(error.struct_size, sizeof error);
  EXPECT_EQ(error.status, status);
  EXPECT_STREQ(error.function, expected.function);
  EXPECT_STREQ(error.argument, expected.argument);
  EXPECT_STREQ(error.field, expected.field);
  EXPECT_EQ(error.index, expected.index);
  EXPECT_EQ(error.tensor, expected.tensor);
}

void expect_invalid(gsc_status got, const Expected &expected) {
  expect_last(got, GSC_ERROR_INVALID_ARGUMENT, expected);
}

const Expected kNothing = {"", ""};

class ErrorTest : public testing::Test {
 protected:
  ErrorTest() { gsc_error_clear(); }

  Context context = make_context();
  Buffer weights{GSC_FP32, 8}, gradients{GSC_FP32, 8}, slots{GSC_FP32, 8};
  List params = make_list(context, weights);
  List grads = make_list(context, gradients);
};

TEST_F(ErrorTest, AnArgument) {
  expect_invalid(gsc_context_create(nullptr, nullptr), {"gsc_context_create", "out_context"});
  expect_invalid(gsc_device_get_count(9, nullptr), {"gsc_device_get_count", "device_type"});
  const auto *other_kind = reinterpret_cast<const gsc_tensor_list *>(context.get());
  int64_t count = 0;
  expect_invalid(gsc_tensor_list_get_count(other_kind, &count), {"gsc_tensor_list_get_count", "list"});
}

TEST_F(ErrorTest, ATensorOfAListInASlot) {
  Buffer small(GSC_FP32, 7);
  const List good = make_list(context, slots), bad = make_list(context, small);
  expect_invalid(status_of_optimizer(context, nullptr, params, grads, {good, bad}),
                 {"gsc_optimizer_create", "state", "", 1, 0});
  expect_invalid(status_of_optimizer(context, nullptr, params, grads, {good, nullptr}),
                 {"gsc_optimizer_create", "state", "", 1, -1});
}

TEST_F(ErrorTest, AnEntryOfAnArray) {
  std::vector<int64_t> histogram(GSC_EXPONENT_BINS, 0);
  histogram[17] = -1;
  float scale = 0.0F;
  expect_invalid(gsc_histogram_recommend_scale(histogram.data(), GSC_EXPONENT_BINS, 1.0F, GSC_FP16, &scale, nullptr),
                 {"gsc_histogram_recommend_scale", "histogram", "", 17, -1});
}

TEST_F(ErrorTest, TheCallAsAWhole) {
  const Scaler scaler = make_scaler(context, 4.0F);
  expect_last(gsc_scaler_update(scaler, nullptr), GSC_ERROR_BAD_STATE, {"gsc_scaler_update", ""});
}

TEST_F(ErrorTest, StaysUntilTheNextFailureOrClear) {
  expect_last(GSC_OK, GSC_OK, kNothing);
  EXPECT_STREQ(gsc_error_get_message(), "");
  const gsc_status failed = gsc_context_create(nullptr, nullptr);
  make_context();
  expect_invalid(failed, {"gsc_context_create", "out_context"});
  std::thread([] { expect_last(GSC_OK, GSC_OK, kNothing); }).join();
  gsc_error_clear();
  expect_last(GSC_OK, GSC_OK, kNothing);
  EXPECT_STREQ(gsc_error_get_message(), "");
}

TEST_F(ErrorTest, ItsOwnFailureIsTheLast) {
  gsc_error error{};
  expect_invalid(gsc_error_get_last(&error), {"gsc_error_get_last", "out_error", "struct_size"});
  EXPECT_EQ(error.function, nullptr) << "outputs stay untouched";
}

}  // namespace
}  // namespace gsc_test
