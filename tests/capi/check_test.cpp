// SPDX-License-Identifier: Apache-2.0
//
// Checks of lists of tensors of several chunks, in every dtype and for every instruction set: inf and NaN, with the
// first offender, the counts, the norm and amax of the report, the norms of gsc_ops_norm, and diagnoses. Also check
// over ranges, empty tensors and empty lists. Every position and magnitude in a span is in tests/core/kernels_test.cpp.
#include "tests/support/objects.h"
#include "tests/support/oracle.h"
#include "tests/support/planted.h"
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

class CheckEach : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(All, CheckEach, ::testing::ValuesIn(kAllDtypes), name_of_dtype);

TEST_P(CheckEach, RangesInAnyOrderEqualOneCheck) {
  const Context context = make_context(2);
  Random random(61);
  std::vector<Buffer> buffers = make_buffers(GetParam(), {10, 70000, 0, 3, 5000, 1, 9000}, 1);
  for (Buffer &buffer : buffers) buffer.fill_random(random, -1.0, 1.0);
  const int64_t orders[][6] = {{0, 3, 3, 2, 5, 2}, {5, 2, 3, 2, 0, 3}, {3, 2, 0, 3, 5, 2}};
  for (const bool overflow : {false, true}) {
    if (overflow) {
      buffers[4].set(4096, kInf);
      buffers[6].set(8999, kNan);
    }
    const List whole = make_list(context, buffers);
    const List parts = make_list(context, buffers);
    const Scaler scaler = make_scaler(context, 32.0f);
    ASSERT_GSC_OK(gsc_scaler_check(scaler, whole, nullptr));
    const gsc_report expected = report_of(scaler, whole);
    for (const auto &order : orders) {
      for (int i = 0; i < 6; i += 2) {
        ASSERT_GSC_OK(gsc_scaler_check_range(scaler, parts, order[i], order[i + 1], nullptr));
      }
      const gsc_report report = report_of(scaler, parts);
      EXPECT_TRUE(same_bytes(report, expected)) << "norm " << report.grad_norm << " and " << expected.grad_norm;
      ASSERT_GSC_OK(gsc_scaler_discard(scaler, parts));
    }
    // A part by range, the rest by check.
    ASSERT_GSC_OK(gsc_scaler_check_range(scaler, parts, 4, 2, nullptr));
    ASSERT_GSC_OK(gsc_scaler_check(scaler, parts, nullptr));
    EXPECT_TRUE(same_bytes(report_of(scaler, parts), expected));
  }
}

/// The report of the gradients of one list, or of all lists of an update.
struct Totals {
  gsc_report report = {};
  std::vector<double> values;
  Totals() { report.first_tensor = report.first_element = -1; }

  void add(const Totals &list) {
    values.insert(values.end(), list.values.begin(), list.values.end());
    report.grad_amax = std::max(report.grad_amax, list.report.grad_amax);
    report.inf_count += list.report.inf_count;
    report.nan_count += list.report.nan_count;
    if (report.first_tensor >= 0) return;
    report.first_tensor = list.report.first_tensor;
    report.first_element = list.report.first_element;
  }
};

Totals totals_of(const std::vector<Buffer> &buffers, double inverse) {
  Totals totals;
  gsc_report &r = totals.report;
  for (size_t t = 0; t < buffers.size(); ++t) {
    for (int64_t i = 0; i < buffers[t].count(); ++i) {
      const double value = buffers[t].get(i) * inverse;
      totals.values.push_back(value);
      if (std::isfinite(value)) {
        r.grad_amax = std::max(r.grad_amax, std::fabs(value));
        continue;
      }
      ++(std::isnan(value) ? r.nan_count : r.inf_count);
      if (r.first_tensor >= 0) continue;
      r.first_tensor = t;
      r.first_element = i;
    }
  }
  return totals;
}

void expect_norm(double got, double expected) {
  if (std::isfinite(expected)) {
    EXPECT_NEAR(got, expected, expected * kNormTolerance);
  } else {
    EXPECT_EQ(text(std::fabs(got)), text(std::fabs(expected)));
  }
}

void expect_report(const gsc_report &got, const Totals &expected) {
  const gsc_report &e = expected.report;
  EXPECT_EQ(got.nonfinite_count, e.inf_count + e.nan_count);
  EXPECT_EQ((got.flags & GSC_REPORT_OVERFLOW) != 0, e.inf_count + e.nan_count > 0);
  EXPECT_EQ(got.inf_count, e.inf_count);
  EXPECT_EQ(got.nan_count, e.nan_count);
  EXPECT_EQ(got.first_tensor, e.first_tensor);
  EXPECT_EQ(got.first_element, e.first_element);
  EXPECT_EQ(got.grad_amax, e.grad_amax);
  expect_norm(got.grad_norm, ref_norms(expected.values).l2);
}

class CheckMany : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(All, CheckMany, ::testing::ValuesIn(usable_cpu_targets()),
                         [](const auto &info) { return text("target", info.param); });

/// Lists of all dtypes, some checked whole, some by ranges, some unscaled: each one's report, and the update's.
TEST_P(CheckMany, ChunksAndLists) {
  constexpr float kScale = 8.0f;
  const Context context = make_context(2, GetParam());
  Random random(62);
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(text("round ", round));
    const Scaler scaler = make_scaler(context, kScale);
    const size_t list_count = 1 + random.below(4);
    std::vector<std::vector<Buffer>> buffers(list_count);
    std::vector<List> lists;
    std::vector<Totals> totals;
    Totals all;
    for (std::vector<Buffer> &list : buffers) {
      for (int64_t t = random.below(5); t >= 0; --t) {
        list.push_back(planted_buffer(random, kAllDtypes[random.below(4)], round % 3 != 0));
      }
      lists.push_back(make_list(context, list));
      totals.push_back(totals_of(list, 1.0 / kScale));
      all.add(totals.back());
    }
    for (const List &list : lists) {
      const int64_t way = random.below(3);
      int64_t size = 0;
      ASSERT_GSC_OK(gsc_tensor_list_get_count(list, &size));
      const int64_t first = random.below(size + 1);
      if (way == 0) {
        ASSERT_GSC_OK(gsc_scaler_unscale(scaler, list, nullptr));
      } else if (way == 1) {
        ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
      } else {
        ASSERT_GSC_OK(gsc_scaler_check_range(scaler, list, first, size - first, nullptr));
        if (first > 0) {
          ASSERT_GSC_OK(gsc_scaler_check_range(scaler, list, 0, first, nullptr));
        }
      }
    }
    for (size_t l = 0; l < list_count; ++l) {
      SCOPED_TRACE(text("list ", l));
      expect_report(report_of(scaler, lists[l]), totals[l]);
    }
    ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
    expect_report(report_of(scaler), all);
    gsc_history_entry entry{};
    int64_t entries = 0;
    ASSERT_GSC_OK(gsc_scaler_get_history_sync(scaler, &entry, 1, &entries, nullptr));
    EXPECT_EQ(entry.nonfinite_count, all.report.inf_count + all.report.nan_count);
    expect_norm(entry.grad_norm, ref_norms(all.values).l2);
    if (HasFailure()) return;
  }
}

struct Result {
  double total = -1.0;
  std::vector<double> each;
};

Result norms_of(const Context &context, std::vector<Buffer> &buffers, int32_t type) {
  Result result;
  result.each.assign(buffers.size(), -1.0);
  EXPECT_GSC_OK(gsc_ops_norm(context, tensors_of(buffers).data(), std::ssize(buffers), type, &result.total,
                             result.each.data(), nullptr));
  return result;
}

void expect_norms(const Context &context, std::vector<Buffer> &buffers) {
  const Result l2 = norms_of(context, buffers, GSC_NORM_L2);
  const Result inf = norms_of(context, buffers, GSC_NORM_INF);
  std::vector<double> all;
  for (size_t t = 0; t < buffers.size(); ++t) {
    const std::vector<double> values = buffers[t].values();
    const Norms expected = ref_norms(values);
    expect_norm(l2.each[t], expected.l2);
    expect_norm(inf.each[t], expected.inf);
    all.insert(all.end(), values.begin(), values.end());
  }
  const Norms expected = ref_norms(all);
  expect_norm(l2.total, expected.l2);
  if (std::isfinite(expected.inf)) {
    EXPECT_EQ(inf.total, expected.inf) << "a maximum is exact";
  } else {
    expect_norm(inf.total, expected.inf);
  }
}

class Norm : public ::testing::TestWithParam<int32_t> {
 protected:
  Context context_ = make_context(2);
};
INSTANTIATE_TEST_SUITE_P(All, Norm, ::testing::ValuesIn(kAllDtypes), name_of_dtype);

TEST_P(Norm, ManyChunks) {
  Random random(33);
  for (int round = 0; round < 12; ++round) {
    std::vector<Buffer> buffers;
    for (int64_t t = random.below(4); t >= 0; --t)
      buffers.push_back(planted_buffer(random, GetParam(), round % 3 == 0));
    SCOPED_TRACE(text("round ", round));
    expect_norms(context_, buffers);
  }
}

TEST(NormOfAll, ThousandsOfTinyTensors) {
  const Context context = make_context(2);
  Random random(33);
  std::vector<Buffer> buffers;
  for (int64_t i = 0; i < 3000; ++i) {
    buffers.emplace_back(kAllDtypes[i % 4], 1 + i % 9, i % 7);
    buffers.back().fill_random(random, -1.0, 1.0);
  }
  expect_norms(context, buffers);
}

TEST(Diagnose, AddsUpChunks) {
  const Context context = make_context(2);
  std::vector<Buffer> buffers = make_buffers(GSC_FP32, {10, 200000});
  for (Buffer &buffer : buffers) buffer.fill(1.0);
  for (const int64_t i : {100, 70000, 199999}) buffers[1].set(i, 1e-40), buffers[1].set(i - 3, 0.0);
  for (const int64_t i : {70001, 140000, 199998}) buffers[1].set(i, kNan), buffers[1].set(i - 5, -kInf);
  gsc_tensor_diagnosis found[2];
  ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(make_list(context, buffers), found, nullptr, 2, nullptr));
  EXPECT_EQ(found[0].first_nonfinite, -1);
  const gsc_tensor_diagnosis &d = found[1];
  EXPECT_EQ((std::vector{d.count, d.inf_count, d.nan_count, d.zero_count, d.subnormal_count, d.first_nonfinite}),
            (std::vector<int64_t>{200000, 3, 3, 3, 3, 69996}));
}

TEST(CheckEmpty, ListsAndTensorsWithoutElements) {
  const Context context = make_context();
  const Scaler scaler = make_scaler(context, 4.0f);
  for (const std::vector<gsc_tensor> &tensors :
       {std::vector<gsc_tensor>{}, {GSC_TENSOR_INIT(nullptr, 0, GSC_FP16), GSC_TENSOR_INIT(nullptr, 0, GSC_FP32)}}) {
    const List list = make_list(context, tensors);
    ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
    const gsc_report report = report_of(scaler, list);
    EXPECT_EQ(report.nonfinite_count, 0);
    EXPECT_EQ(report.grad_norm, 0.0);
    EXPECT_EQ(report.grad_amax, 0.0);
    ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
    ASSERT_GSC_OK(gsc_scaler_unscale(scaler, list, nullptr));
    ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  }
  EXPECT_EQ(report_of(scaler).updates, 4);
}

/// The kind: a list without elements to multiply, whatever it has in place of them, at a scale whose inverse is inf, by
/// every call that checks.
TEST(CheckEmpty, IsCleanAtAScaleWithoutAnInverse) {
  using Check = std::function<gsc_status(gsc_scaler *, gsc_tensor_list *, gsc_optimizer *)>;
  const Check checks[] = {[](auto *s, auto *, auto *o) { return gsc_scaler_step(s, o, nullptr); },
                          [](auto *s, auto *, auto *o) { return gsc_scaler_step_and_update(s, o, nullptr); },
                          [](auto *s, auto *, auto *o) {
                            int64_t left = 0;
                            gsc_status status = GSC_OK;
                            do {
                              status = gsc_scaler_step_slice(s, o, 1, &left, nullptr);
                            } while (status == GSC_OK && left > 0);
                            return status;
                          },
                          [](auto *s, auto *g, auto *o) {
                            const gsc_status status = gsc_scaler_check(s, g, nullptr);
                            return status == GSC_OK ? gsc_scaler_step(s, o, nullptr) : status;
                          },
                          [](auto *s, auto *g, auto *o) {
                            const gsc_status status = gsc_scaler_check_range(s, g, 0, 2, nullptr);
                            return status == GSC_OK ? gsc_scaler_step(s, o, nullptr) : status;
                          },
                          [](auto *s, auto *g, auto *o) {
                            const gsc_status status = gsc_scaler_unscale(s, g, nullptr);
                            return status == GSC_OK ? gsc_scaler_step(s, o, nullptr) : status;
                          },
                          [](auto *s, auto *g, auto *o) {
                            const gsc_status status = gsc_scaler_clip_grad_norm(s, g, 1.0, GSC_NORM_L2, nullptr);
                            return status == GSC_OK ? gsc_scaler_step(s, o, nullptr) : status;
                          },
                          [](auto *s, auto *g, auto *) {
                            int32_t apply = 0;
                            const gsc_status status = gsc_scaler_should_step_sync(s, g, &apply, nullptr);
                            EXPECT_EQ(apply, 1);
                            return status;
                          }};
  const Context context = make_context();
  const uint8_t absent[2] = {0, 0};
  for (const bool is_empty : {false, true}) {
    for (size_t i = 0; i < std::size(checks); ++i) {
      SCOPED_TRACE(text("check ", i, is_empty ? ", of empty tensors" : ", of absent ones"));
      Trainer trainer(context, {.options = optimizer_options(GSC_ADAMW),
                                .counts = is_empty ? std::vector<int64_t>{0, 0} : std::vector<int64_t>{40000, 3},
                                .grad_dtypes = {GSC_FP16, GSC_FP32}});
      const Scaler scaler = make_scaler(context, 1e-40f);
      ASSERT_GSC_OK(gsc_tensor_list_set_present(trainer.grad_list(), absent, nullptr, 2, nullptr));
      const Snapshot before = trainer.snapshot();
      ASSERT_GSC_OK(checks[i](scaler, trainer.grad_list(), trainer));
      if (i != 1) {
        ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
      }
      for (const gsc_report &report : {report_of(scaler, trainer.grad_list()), report_of(scaler)}) {
        EXPECT_EQ(report.flags & GSC_REPORT_OVERFLOW, 0u);
        EXPECT_EQ(report.nonfinite_count, 0);
        EXPECT_EQ(report.grad_norm, 0.0);
        EXPECT_EQ(report.grad_amax, 0.0);
        EXPECT_EQ(report.skipped, 0);
      }
      EXPECT_EQ(applied_steps(trainer), i + 1 < std::size(checks) ? 1 : 0);
      EXPECT_EQ(skipped_steps(trainer), 0);
      EXPECT_TRUE(trainer.snapshot().params == before.params && trainer.snapshot().state == before.state);
    }
  }
}

/// 0 times an inverse scale of inf is NaN, but there is no 0 in it.
TEST(CheckEmpty, AtAScaleWithoutAnInverse) {
  const Context context = make_context();
  const Scaler scaler = make_scaler(context, 1e-40f);
  std::vector<Buffer> none = make_buffers(GSC_FP16, {0, 0}), zero = make_buffers(GSC_FP16, {1});
  const List empty = make_list(context, none), of_zero = make_list(context, zero);
  ASSERT_GSC_OK(gsc_scaler_check(scaler, empty, nullptr));
  EXPECT_EQ(report_of(scaler, empty).flags & GSC_REPORT_OVERFLOW, 0u);
  EXPECT_EQ(report_of(scaler, empty).nonfinite_count, 0);
  ASSERT_GSC_OK(gsc_scaler_check(scaler, of_zero, nullptr));
  EXPECT_NE(report_of(scaler, of_zero).flags & GSC_REPORT_OVERFLOW, 0u);
}

}  // namespace
}  // namespace gsc_test
