// SPDX-License-Identifier: Apache-2.0
// The optimizers' kernels for every instruction set this processor has: every formula, every combination of dtypes, all
// options, lengths and alignments, bit for bit against the baseline's on one element after the other. So blocks, tails,
// buffers, streamed stores and instruction sets change nothing; that a step is right is in optimizer_test.cpp.
#include "core/rules/optim/variants.h"
#include "tests/core/kernel_testing.h"

namespace gsc::cpu {
namespace {

using namespace gsc::cpu::testing;

/// What a step reads and writes.
struct Arrays {
  Buffer param, grad, copy;
  std::vector<Buffer> state;
};

struct Case {
  Variant variant = Variant::kAdamW;
  int32_t param_dtype = GSC_FP32, grad_dtype = GSC_FP16, copy_dtype = GSC_FP16;
  bool copy = true;
  int64_t n = 0, shift = 0;
  float inv_scale = 1.1e-3F, clip = 0.7F;  // not powers of two: the order of the products shows
  double clip_value = kInf;
  bool maximize = false, zero_grads = false, write_grads = false, streaming = false;
  Fill grads = kOrdinary;

  int32_t arithmetic() const { return param_dtype == GSC_FP64 ? GSC_FP64 : GSC_FP32; }
  Coefficients<double> coefficients() const {
    const double dampening = variant == Variant::kSgdMomentum ? 0.25 : 0.0;
    Hyper h{};
    h.lr = 1e-2, h.lr_decay = 0.1, h.weight_decay = 0.05, h.eps = 1e-8, h.eps_root = 1e-9;
    h.beta1 = 0.9, h.beta2 = 0.99, h.beta3 = 0.9999, h.half_life1 = 5.579, h.half_life3 = 6930.12;
    h.momentum = 0.8, h.dampening = dampening, h.mu_decay = 0.99, h.alpha = 0.95, h.rho = 0.9;
    h.weight_lr_power = 2.0, h.trust_coefficient = 0.5;
    return make_coefficients(variant, h, h.lr, maximize, 3);
  }
  std::string text() const {
    return "variant " + std::to_string(static_cast<int>(variant)) + " params " + dtype_name(param_dtype) + " grads " +
           dtype_name(grad_dtype) + (copy ? " copy " + dtype_name(copy_dtype) : "") + " n=" + std::to_string(n) +
           " shift=" + std::to_string(shift) + (streaming ? " streaming" : "");
  }
};

Arrays make_arrays(const Case &c, std::mt19937_64 &random) {
  Arrays a{Buffer(c.param_dtype, c.n, c.shift),
           Buffer(c.grad_dtype, c.n, 2 * c.shift),
           Buffer(c.copy_dtype, c.copy ? c.n : 0, c.shift),
           {}};
  fill(a.param, kOrdinary, random);
  fill(a.grad, c.grads, random);
  for (int k = 0; k < state_count(c.variant); ++k) {
    Buffer &state = a.state.emplace_back(c.arithmetic(), c.n, k + c.shift);
    fill(state, kOrdinary, random);
    // Second moments and sums of squares are never negative.
    const bool first_moment = traits(c.variant).kind.slots[k].holds == Slot::kMoment;
    for (int64_t i = 0; i < c.n && !first_moment; ++i) state.set(i, std::fabs(state.get(i)));
  }
  // A mean of squares is at least the square of the mean.
  const bool is_centered = c.variant == Variant::kRmspropCentered || c.variant == Variant::kRmspropCenteredMomentum;
  for (int64_t i = 0; is_centered && i < c.n; ++i) {
    const double mean = a.state.back().get(i);
    a.state[0].set(i, a.state[0].get(i) + 2.0 * mean * mean);
  }
  return a;
}

ApplySpan make_span(const Case &c, Arrays &a, const Coefficients<double> &coefficients, int64_t first = 0) {
  ApplySpan span{};
  span.n = c.n - first;
  span.param = a.param.data(first);
  span.grad = a.grad.data(first);
  span.model_copy = c.copy ? a.copy.data(first) : nullptr;
  for (size_t k = 0; k < a.state.size(); ++k) span.state[k] = a.state[k].data(first);
  span.coefficients = &coefficients;
  span.inv_scale = c.inv_scale;
  span.clip = c.clip;
  span.clip_value = c.clip_value;
  span.param_dtype = c.param_dtype;
  span.grad_dtype = c.grad_dtype;
  span.copy_dtype = c.copy_dtype;
  span.zero_grads = c.zero_grads;
  span.write_grads = c.write_grads;
  span.streaming = c.streaming;
  span.prefetch_bytes = c.streaming ? 1024 : 0;
  return span;
}

/// Calls `run` with the baseline's kernels and a span of each element.
template <typename Run>
void for_elements(const Case &c, Arrays &a, const Run &run) {
  static const Kernels &baseline = *usable_kernels().front();
  const Coefficients<double> coefficients = c.coefficients();
  for (int64_t i = 0; i < c.n; ++i) {
    ApplySpan span = make_span(c, a, coefficients, i);
    span.n = 1;
    span.streaming = false;
    span.prefetch_bytes = 0;
    run(baseline, span);
  }
}

void expect_same(const Buffer &got, const Buffer &expected, const char *what) {
  const int64_t i = got.first_difference(expected);
  EXPECT_TRUE(expected.guards_intact()) << what;
  EXPECT_EQ(i, -1) << what << ": " << (i < got.size() ? got.get(i) : kNan) << " instead of "
                   << (i < got.size() ? expected.get(i) : kNan);
}

void expect_same(const Arrays &got, const Arrays &expected) {
  expect_same(got.param, expected.param, "parameter");
  expect_same(got.grad, expected.grad, "gradient");
  expect_same(got.copy, expected.copy, "model copy");
  for (size_t k = 0; k < got.state.size(); ++k) expect_same(got.state[k], expected.state[k], "state");
}

void expect_step(const Case &c, std::mt19937_64 &random) {
  const Arrays start = make_arrays(c, random);
  Arrays expected = start;
  const auto variant = static_cast<int>(c.variant);
  for_elements(c, expected, [&](const Kernels &kernels, ApplySpan &span) { kernels.sweeps[variant]->apply(&span); });
  const Coefficients<double> coefficients = c.coefficients();
  for (const Kernels *kernels : usable_kernels()) {
    SCOPED_TRACE(kernels->name + (" " + c.text()));
    Arrays work = start;
    ApplySpan span = make_span(c, work, coefficients);
    kernels->sweeps[variant]->apply(&span);
    expect_same(work, expected);
  }
}

/// All but those that need norms, whose two sweeps have tests below.
std::vector<int> variants_of_one_sweep() {
  std::vector<int> result;
  for (int variant = 0; variant < kVariantCount; ++variant) {
    if (!needs_norms(static_cast<Variant>(variant))) result.push_back(variant);
  }
  return result;
}

class KernelApply : public ::testing::TestWithParam<int> {
 protected:
  Variant variant() const { return static_cast<Variant>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Variants, KernelApply, ::testing::ValuesIn(variants_of_one_sweep()));

TEST_P(KernelApply, EveryLength) {
  std::mt19937_64 random(20);
  for (int64_t n = 0; n <= 600; ++n) {
    expect_step({.variant = variant(), .n = n, .shift = n % 5, .streaming = n % 2 == 0}, random);
    expect_step(
        {.variant = variant(), .param_dtype = GSC_FP64, .grad_dtype = GSC_FP64, .copy = false, .n = n, .shift = n % 3},
        random);
    if (HasFailure()) return;
  }
}

TEST_P(KernelApply, EveryCombinationOfDtypes) {
  std::mt19937_64 random(21);
  for (const int32_t param : kDtypes) {
    for (const int32_t grad : kDtypes) {
      for (const int32_t copy : std::initializer_list<int32_t>{0, GSC_FP16, GSC_BF16, GSC_FP32, GSC_FP64}) {
        for (const int64_t n : {5, 256, 1000}) {
          expect_step({.variant = variant(),
                       .param_dtype = param,
                       .grad_dtype = grad,
                       .copy_dtype = copy == 0 ? GSC_FP16 : copy,
                       .copy = copy != 0,
                       .n = n,
                       .shift = copy},
                      random);
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(KernelApply, EveryOption) {
  std::mt19937_64 random(22);
  for (int bits = 0; bits < 32; ++bits) {
    for (const int32_t grad : kDtypes) {
      expect_step({.variant = variant(),
                   .grad_dtype = grad,
                   .n = 391,
                   .clip_value = (bits & 1) != 0 ? 1e-4 : kInf,
                   .maximize = (bits & 2) != 0,
                   .zero_grads = (bits & 4) != 0,
                   .write_grads = (bits & 8) != 0,
                   .streaming = (bits & 16) != 0},
                  random);
    }
    if (HasFailure()) return;
  }
}

TEST_P(KernelApply, EveryKindOfGradient) {
  std::mt19937_64 random(23);
  for (const Fill kind : kFills) {
    for (const int32_t param : {GSC_FP32, GSC_FP64, GSC_BF16}) {
      for (const int32_t grad : kDtypes) {
        expect_step({.variant = variant(),
                     .param_dtype = param,
                     .grad_dtype = grad,
                     .n = 1111,
                     .inv_scale = 1.0F,
                     .write_grads = true,
                     .grads = kind},
                    random);
      }
      if (HasFailure()) return;
    }
  }
}

TEST_P(KernelApply, LongSpansAtEveryAlignmentOfTheCopy) {
  // Streamed blocks start where the copy meets a cache line, so every start is another split into blocks.
  std::mt19937_64 random(24);
  for (int shift = 0; shift < 64; ++shift) {
    expect_step({.variant = variant(), .n = 2500, .shift = shift, .streaming = true}, random);
    if (HasFailure()) return;
  }
}

TEST(KernelApplyNan, ReachesTheParameter) {
  // A NaN that appears after the check is not the optimizer's to hide, and does not spread to its neighbours. Clamping
  // keeps it too.
  for (const int variant : variants_of_one_sweep()) {
    for (const double clip_value : {kInf, 0.5}) {
      const Case c{.variant = static_cast<Variant>(variant), .n = 300, .clip_value = clip_value};
      std::mt19937_64 random(25);
      const Arrays start = make_arrays(c, random);
      const Coefficients<double> coefficients = c.coefficients();
      for (const Kernels *kernels : usable_kernels()) {
        Arrays work = start;
        work.grad.set(77, kNan);
        ApplySpan span = make_span(c, work, coefficients);
        kernels->sweeps[variant]->apply(&span);
        for (int64_t i = 0; i < c.n; ++i) {
          ASSERT_EQ(std::isnan(work.param.get(i)), i == 77) << kernels->name << " variant " << variant << " at " << i;
          ASSERT_EQ(std::isnan(work.copy.get(i)), i == 77) << kernels->name << " variant " << variant << " at " << i;
        }
      }
    }
  }
}

// --- LAMB ------------------------------------------------------------------------------------------------------------

/// Squares in double added up in core/rules/reduction.h's order for rows of so many columns.
double sum_of(const std::vector<double> &squares, size_t columns) {
  double total = 0.0;
  for (size_t start = 0; start < squares.size(); start += columns * kRows) {
    const auto first = squares.begin() + start,
               end = squares.begin() + std::min(start + columns * kRows, squares.size());
    total += sum_of_tile(std::vector<double>(first, end), columns);
  }
  return total;
}

void expect_lamb(const Case &c, std::mt19937_64 &random) {
  constexpr auto kLamb = static_cast<int>(Variant::kLamb);
  constexpr double kTrust = 1.37;
  const Arrays start = make_arrays(c, random);
  Arrays first = start;
  std::vector<double> params, directions;
  for_elements(c, first, [&](const Kernels &kernels, ApplySpan &span) {
    kernels.sweeps[kLamb]->moments(&span);
    params.push_back(span.norms.param);
    directions.push_back(span.norms.direction);
  });
  const size_t columns = kRowBytes / dtype_bytes(c.arithmetic());
  const ChunkNorms norms = {sum_of(params, columns), sum_of(directions, columns)};
  Arrays second = first;
  for_elements(c, second, [&](const Kernels &kernels, ApplySpan &span) {
    span.ratio = kTrust;
    kernels.sweeps[kLamb]->apply(&span);
  });
  const Coefficients<double> coefficients = c.coefficients();
  for (const Kernels *kernels : usable_kernels()) {
    SCOPED_TRACE(std::string(kernels->name) + " LAMB " + c.text());
    Arrays work = start;
    ApplySpan span = make_span(c, work, coefficients);
    span.norms = {-1.0, -1.0};
    kernels->sweeps[kLamb]->moments(&span);
    expect_same(work, first);
    EXPECT_TRUE(same_bits(span.norms.param, norms.param)) << span.norms.param << " instead of " << norms.param;
    EXPECT_TRUE(same_bits(span.norms.direction, norms.direction))
        << span.norms.direction << " instead of " << norms.direction;
    span.ratio = kTrust;
    kernels->sweeps[kLamb]->apply(&span);
    expect_same(work, second);
  }
}

TEST(KernelLamb, EveryLength) {
  std::mt19937_64 random(30);
  for (const int32_t param : {GSC_FP32, GSC_FP64}) {
    for (const int64_t n : lengths(param, true)) {
      expect_lamb({.variant = Variant::kLamb, .param_dtype = param, .n = n, .shift = n % 6, .streaming = n % 2 == 0},
                  random);
      if (HasFailure()) return;
    }
  }
}

TEST(KernelLamb, EveryCombinationOfDtypesAndOptions) {
  std::mt19937_64 random(31);
  for (const int32_t param : kDtypes) {
    for (const int32_t grad : kDtypes) {
      for (int bits = 0; bits < 16; ++bits) {
        expect_lamb({.variant = Variant::kLamb,
                     .param_dtype = param,
                     .grad_dtype = grad,
                     .copy_dtype = kDtypes[bits % 4],
                     .n = 2300,
                     .clip_value = (bits & 1) != 0 ? 1e-4 : kInf,
                     .maximize = (bits & 2) != 0,
                     .zero_grads = (bits & 4) != 0,
                     .write_grads = (bits & 8) != 0},
                    random);
      }
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace gsc::cpu
