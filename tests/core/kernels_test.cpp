// SPDX-License-Identifier: Apache-2.0
// check and unscale for every instruction set this processor has, against a reference that follows core/rules/reduction.h to
// the letter, one element at a time and with missing elements as zeros. Equal to one reference, the instruction sets
// are equal to each other. That the reference itself sums well is tested against long double at the end.
#include "tests/core/kernel_testing.h"
#include "tests/support/repetition.h"

namespace gsc::cpu {
namespace {

using namespace gsc::cpu::testing;

constexpr ReadAhead kAhead = ReadAhead::kNextTile;

/// x * inv_scale in the arithmetic type of the dtype.
double product(int32_t dtype, double x, float inv_scale) {
  return dtype == GSC_FP64 ? x * inv_scale : static_cast<float>(x) * inv_scale;
}

double narrowed(int32_t dtype, double x) {
  Buffer one(dtype, 1);
  one.set(0, x);
  return one.get(0);
}

ChunkStat reference_stat(const Buffer &data, float inv_scale, bool unscale) {
  const int32_t dtype = data.dtype();
  const int64_t row = kRowBytes / dtype_bytes(dtype);
  const int64_t tile_size = row * kRows;
  const size_t columns = row;
  ChunkStat stat{0.0, 0.0, 0, 0, -1};
  for (int64_t start = 0; start < data.size(); start += tile_size) {
    std::vector<double> tile;
    double amax = 0.0;
    bool finite = true;
    for (int64_t i = start; i < std::min(start + tile_size, data.size()); ++i) {
      const double x = data.get(i);
      double result = product(dtype, x, inv_scale);
      if (unscale) result = narrowed(dtype, result);
      const bool nan = std::isnan(x) || (std::isfinite(x) && std::isnan(result));
      const bool inf = std::isinf(x) || (std::isfinite(x) && std::isinf(result));
      stat.nan_count += nan ? 1 : 0;
      stat.inf_count += inf ? 1 : 0;
      if ((nan || inf) && stat.first < 0) stat.first = i;
      finite = finite && !nan && !inf;
      if (std::isfinite(x)) amax = std::max(amax, std::fabs(x));
      tile.push_back(x);
    }
    stat.amax = std::max(stat.amax, amax);
    if (!finite) continue;
    const bool wide = dtype == GSC_FP64 || (dtype != GSC_FP16 && amax > 0.0 && (amax < kSafeMin || amax > kSafeMax));
    stat.sum_sq += wide ? reference_tile<double>(tile, columns) : reference_tile<float>(tile, columns);
  }
  if (stat.nan_count > 0) {
    stat.sum_sq = kNan;
  } else if (stat.inf_count > 0) {
    stat.sum_sq = kInf;
  }
  return stat;
}

void expect_equal(const ChunkStat &got, const ChunkStat &expected) {
  EXPECT_EQ(got.inf_count, expected.inf_count);
  EXPECT_EQ(got.nan_count, expected.nan_count);
  EXPECT_EQ(got.first, expected.first);
  EXPECT_TRUE(same_bits(got.amax, expected.amax)) << got.amax << " instead of " << expected.amax;
  EXPECT_TRUE(std::isnan(expected.sum_sq) ? std::isnan(got.sum_sq) : same_bits(got.sum_sq, expected.sum_sq))
      << got.sum_sq << " instead of " << expected.sum_sq;
}

/// The data as the second of three tensors: check_small deals with it if it can, and then finds what check would.
void expect_small(const Kernels &kernels, const Buffer &data, float inv_scale, const ChunkStat &expected) {
  Buffer ones(data.dtype(), 1);
  ones.set(0, 0.5);
  const Tensor one{ones.data(), 1, data.dtype()};
  const Tensor tensors[] = {one, {const_cast<char *>(data.data()), data.size(), data.dtype()}, one};
  ChunkPartial partials[4] = {{{-1.0, -1.0}}, {{-1.0, -1.0}}, {{-1.0, -1.0}}, {{-1.0, -1.0}}};
  const int64_t done = kernels.check_small(tensors, 3, inv_scale, kFp64Limit, partials);
  const bool small = data.size() > 0 && data.size() <= kTileBytes / dtype_bytes(data.dtype());
  if (!std::isfinite(inv_scale)) {
    EXPECT_EQ(done, 0);
    return;
  }
  EXPECT_EQ(done, small && expected.first < 0 ? 3 : 1);
  EXPECT_EQ(partials[0].sum.amax, 0.5);
  EXPECT_EQ(partials[3].sum.amax, -1.0) << "wrote past the end";
  if (done < 3) return;
  EXPECT_EQ(partials[2].sum.amax, 0.5);
  EXPECT_TRUE(same_bits(partials[1].sum.sum_sq, expected.sum_sq))
      << partials[1].sum.sum_sq << " not " << expected.sum_sq;
  EXPECT_TRUE(same_bits(partials[1].sum.amax, expected.amax)) << partials[1].sum.amax << " not " << expected.amax;
}

/// Runs check and unscale of every instruction set over the data and compares; check must leave the data alone.
void expect_stats(const Buffer &data, float inv_scale) {
  const ChunkStat checked = reference_stat(data, inv_scale, false);
  const ChunkStat unscaled = reference_stat(data, inv_scale, true);
  Buffer scaled = data;
  for (int64_t i = 0; i < data.size(); ++i) scaled.set(i, product(data.dtype(), data.get(i), inv_scale));
  for (const Kernels *kernels : usable_kernels()) {
    SCOPED_TRACE(::testing::Message() << kernels->name << ' ' << dtype_name(data.dtype()) << " n=" << data.size()
                                      << " inv_scale=" << inv_scale);
    Buffer work = data;
    ChunkStat stat;
    for (const ReadAhead ahead : kReadAheads) {
      kernels->check(data.dtype(), work.data(), work.size(), inv_scale, kFp64Limit, ahead, &stat);
      expect_equal(stat, checked);
    }
    EXPECT_EQ(work.first_difference(data), -1) << "check wrote";
    expect_small(*kernels, data, inv_scale, checked);
    kernels->unscale(data.dtype(), work.data(), work.size(), inv_scale, kFp64Limit, kAhead, &stat);
    expect_equal(stat, unscaled);
    EXPECT_EQ(work.first_difference(scaled), -1);
  }
}

class KernelStat : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, KernelStat, ::testing::ValuesIn(kDtypes),
                         [](const auto &info) { return dtype_name(info.param); });

TEST_P(KernelStat, EmptySpan) {
  for (const Kernels *kernels : usable_kernels()) {
    ChunkStat stat{1, 1, 1, 1, 1};
    kernels->check(GetParam(), nullptr, 0, 1.0F, kFp64Limit, kAhead, &stat);
    expect_equal(stat, {0.0, 0.0, 0, 0, -1});
    stat = {1, 1, 1, 1, 1};
    kernels->unscale(GetParam(), nullptr, 0, 1.0F, kFp64Limit, kAhead, &stat);
    expect_equal(stat, {0.0, 0.0, 0, 0, -1});
  }
}

TEST_P(KernelStat, SmallTensorsOfAnotherDtype) {
  Buffer mine(GetParam(), 3), other(GetParam() == GSC_FP32 ? GSC_FP16 : GSC_FP32, 3);
  for (int64_t i = 0; i < 3; ++i) mine.set(i, 1.0), other.set(i, 1.0);
  const Tensor a{mine.data(), 3, mine.dtype()}, b{other.data(), 3, other.dtype()};
  for (const Kernels *kernels : usable_kernels()) {
    ChunkPartial partials[3] = {};
    const Tensor tensors[] = {a, a, b};
    EXPECT_EQ(kernels->check_small(tensors, 3, 1.0F, kFp64Limit, partials), 2) << kernels->name;
    EXPECT_EQ(kernels->check_small(tensors, 1, 1.0F, kFp64Limit, partials), 1) << kernels->name;
    EXPECT_EQ(kernels->check_small(tensors, 0, 1.0F, kFp64Limit, partials), 0) << kernels->name;
  }
}

TEST_P(KernelStat, EveryLengthAndStart) {
  std::mt19937_64 random(2);
  int shift = 0;
  for (const int64_t n : lengths(GetParam(), true)) {
    Buffer data(GetParam(), n, shift++ % 8);
    fill(data, kOrdinary, random);
    expect_stats(data, 0x1p-16F);
    if (HasFailure()) return;
  }
}

TEST_P(KernelStat, EveryKindOfValue) {
  std::mt19937_64 random(3);
  for (const Fill kind : kFills) {
    for (const int64_t n : lengths(GetParam(), false)) {
      Buffer data(GetParam(), n, n % 5);
      fill(data, kind, random);
      // 1e10 overflows on the way, 3 only in the narrow dtypes, and 0 and the others must not. The inverse of a denormal
      // scale is inf: what is not zero becomes inf, and zero becomes NaN.
      for (const float inv_scale : {1.0F, 0x1p-16F, 3.0F, 1e10F, 0.0F, INFINITY}) {
        expect_stats(data, inv_scale);
        if (gsc_test::kSanitized) break;
      }
      if (HasFailure()) return;
    }
  }
}

TEST(KernelStatWide, BoundsOfTheRangeSummedInSinglePrecision) {
  std::mt19937_64 random(9);
  for (const int32_t dtype : {GSC_BF16, GSC_FP32}) {
    for (const double bound : {kSafeMin, kSafeMax}) {
      for (const double factor : {0.25, 0.75, 0.9921875, 1.0, 1.0078125, 1.5, 4.0}) {
        Buffer data(dtype, 5000);
        fill(data, kOrdinary, random);
        for (int64_t i = 0; i < data.size(); ++i) data.set(i, data.get(i) * bound * factor * 0.5);
        // One in each tile that is larger than the rest, and thereby decides.
        for (const int64_t i : {100, 2500, 4500}) data.set(i, bound * factor);
        expect_stats(data, 1.0F);
      }
    }
  }
}

TEST_P(KernelStat, RowsOfManyMagnitudes) {
  // Those that check_small takes many at a time, down to subnormals and to squares that vanish in fp32.
  const int lowest = GetParam() == GSC_FP16 ? -24 : -149;
  for (const int groups : {8, 16, 32}) {
    Buffer data(GetParam(), groups * kGroupBytes / dtype_bytes(GetParam()));
    for (int64_t i = 0; i < data.size(); ++i) {
      const int exponent = lowest + i * 37 % (15 - lowest);
      data.set(i, std::ldexp(i % 2 == 0 ? 1.0 : -1.75, exponent));
    }
    expect_stats(data, 0.5F);
  }
}

TEST_P(KernelStat, ManyRowsOfOneSize) {
  // More than two times as many as check_small takes at a time, each with different values; then one of them with an
  // element that decides about all of its row, and one of another size.
  constexpr int kTensors = 19;
  std::mt19937_64 random(10);
  for (const int groups : {8, 16, 32}) {
    std::vector<Buffer> rows;
    for (int t = 0; t < kTensors; ++t) {
      rows.emplace_back(GetParam(), groups * kGroupBytes / dtype_bytes(GetParam()));
      fill(rows.back(), kOrdinary, random);
    }
    const auto expect_rows = [&](int shorter) {
      SCOPED_TRACE(std::to_string(groups) + " groups");
      std::vector<Tensor> tensors;
      std::vector<ChunkStat> expected;
      for (int t = 0; t < kTensors; ++t) {
        Buffer row(GetParam(), rows[t].size() - (t == shorter ? 1 : 0));
        for (int64_t i = 0; i < row.size(); ++i) row.set(i, rows[t].get(i));
        expected.push_back(reference_stat(row, 0.5F, false));
        tensors.push_back({rows[t].data(), row.size(), GetParam()});
      }
      const auto stop = std::find_if(expected.begin(), expected.end(), [](const auto &e) { return e.first >= 0; });
      for (const Kernels *kernels : usable_kernels()) {
        std::vector<ChunkPartial> partials(kTensors + 1, ChunkPartial{{-1.0, -1.0}});
        const int64_t done = kernels->check_small(tensors.data(), kTensors, 0.5F, kFp64Limit, partials.data());
        ASSERT_EQ(done, stop - expected.begin()) << kernels->name;
        EXPECT_EQ(partials[kTensors].sum.amax, -1.0) << kernels->name << " wrote past the end";
        for (int64_t t = 0; t < done; ++t) {
          EXPECT_TRUE(same_bits(partials[t].sum.sum_sq, expected[t].sum_sq)) << kernels->name << ", tensor " << t;
          EXPECT_TRUE(same_bits(partials[t].sum.amax, expected[t].amax)) << kernels->name << ", tensor " << t;
        }
      }
    };
    expect_rows(-1);
    for (int t = 0; t < kTensors; ++t) {
      expect_rows(t);
      const int64_t at = t * 7 % rows[t].size();
      const double saved = rows[t].get(at);
      // 60000 is beyond all others, and finite in every dtype; squares of 2^70 overflow fp32.
      for (const double value : {kInf, -kInf, kNan, -60000.0, 0x1p70}) {
        rows[t].set(at, value);
        expect_rows(-1);
      }
      rows[t].set(at, saved);
      if (HasFailure()) return;
    }
    // One of zeros; one of magnitudes whose squares vanish in fp32.
    for (int64_t i = 0; i < rows[3].size(); ++i) rows[3].set(i, 0.0), rows[12].set(i, 0x1p-70);
    expect_rows(-1);
  }
}

TEST_P(KernelStat, NonfiniteAtEveryPosition) {
  std::mt19937_64 random(5);
  for (const int64_t n : {1, 7, 64, 300}) {
    Buffer data(GetParam(), n, 1);
    fill(data, kOrdinary, random);
    for (int64_t i = 0; i < n; ++i) {
      const double saved = data.get(i);
      for (const double bad : {kInf, -kInf, kNan}) {
        data.set(i, bad);
        expect_stats(data, 0.25F);
      }
      data.set(i, saved);
      if (HasFailure()) return;
    }
  }
}

TEST_P(KernelStat, NonfiniteAtEdgesOfRowsAndTiles) {
  std::mt19937_64 random(6);
  const int64_t row = kRowBytes / dtype_bytes(GetParam());
  const int64_t tile = row * kRows;
  const int64_t n = 2 * tile + row + 5;
  Buffer data(GetParam(), n, 3);
  fill(data, kOrdinary, random);
  for (const int64_t i : {int64_t{0}, row - 1, row, tile - 1, tile, tile + 1, 2 * tile - 1, 2 * tile, n - 6, n - 1}) {
    const double saved = data.get(i);
    for (const double bad : {kInf, kNan}) {
      data.set(i, bad);
      expect_stats(data, 1.0F);
    }
    data.set(i, saved);
  }
  // Many, of both kinds, spread over all tiles.
  for (int64_t i = 11; i < n; i += 97) data.set(i, i % 2 == 0 ? kNan : -kInf);
  expect_stats(data, 1.0F);
  expect_stats(data, 0.0F);  // inf * 0 is NaN, but what is stored is inf
}

TEST_P(KernelStat, SignallingNanIsCounted) {
  Buffer data(GetParam(), 40);
  std::mt19937_64 random(7);
  fill(data, kOrdinary, random);
  const uint64_t bits = GetParam() == GSC_FP16   ? 0x7c01
                        : GetParam() == GSC_BF16 ? 0x7f81
                        : GetParam() == GSC_FP32 ? 0x7f800001
                                                 : 0x7ff0000000000001;
  std::memcpy(data.data(33), &bits, dtype_bytes(GetParam()));  // little-endian, as all targets
  for (const Kernels *kernels : usable_kernels()) {
    ChunkStat stat;
    kernels->check(GetParam(), data.data(), data.size(), 1.0F, kFp64Limit, kAhead, &stat);
    EXPECT_EQ(stat.nan_count, 1) << kernels->name;
    EXPECT_EQ(stat.first, 33) << kernels->name;
  }
}

TEST(KernelStatNarrow, OverflowOnlyWhenRounded) {
  // The largest value of a 16-bit dtype times a little more than 1 is finite in fp32. Rounded back it is inf from half
  // a unit in the last place on: for fp16 65520 / 65504 = 1.000244..., for bf16 0x1.ffp127 / 0x1.fep127 = 1.00196...
  struct Row {
    int32_t dtype;
    double largest;
    float below, above;
  };
  for (const Row &row : {Row{GSC_FP16, 65504.0, 1.00024F, 1.00025F}, Row{GSC_BF16, 0x1.fep127, 1.00195F, 1.00197F}}) {
    for (const Kernels *kernels : usable_kernels()) {
      for (const float inv_scale : {row.below, row.above}) {
        SCOPED_TRACE(::testing::Message() << kernels->name << ' ' << dtype_name(row.dtype) << ' ' << inv_scale);
        Buffer data(row.dtype, 300);
        for (int64_t i = 0; i < data.size(); ++i) data.set(i, 1.0);
        data.set(7, -row.largest);
        ChunkStat stat;
        kernels->check(row.dtype, data.data(), data.size(), inv_scale, kFp64Limit, kAhead, &stat);
        EXPECT_EQ(stat.inf_count, 0);
        kernels->unscale(row.dtype, data.data(), data.size(), inv_scale, kFp64Limit, kAhead, &stat);
        EXPECT_EQ(stat.inf_count, inv_scale == row.above ? 1 : 0);
        EXPECT_EQ(stat.first, inv_scale == row.above ? 7 : -1);
        EXPECT_EQ(std::isinf(stat.sum_sq), inv_scale == row.above);
        EXPECT_EQ(data.get(7), inv_scale == row.above ? -kInf : -row.largest);
        EXPECT_EQ(stat.amax, row.largest);
      }
    }
  }
}

TEST_P(KernelStat, SumsAreCloseToExact) {
  // Columns of at most 16 fp32 terms: 16 roundings of 2^-24 bound the relative error of a sum of positive terms.
  const double bound = GetParam() == GSC_FP64 ? 1e-13 : 17 * 0x1p-24;
  std::mt19937_64 random(8);
  for (const Fill kind : {kOrdinary, kTiny, kHuge, kAnyFinite}) {
    Buffer data(GetParam(), 100001);
    fill(data, kind, random);
    long double exact = 0;
    for (int64_t i = 0; i < data.size(); ++i) exact += static_cast<long double>(data.get(i)) * data.get(i);
    for (const Kernels *kernels : usable_kernels()) {
      ChunkStat stat;
      kernels->check(GetParam(), data.data(), data.size(), 0x1p-10F, kFp64Limit, kAhead, &stat);
      EXPECT_EQ(stat.inf_count + stat.nan_count, 0);
      EXPECT_LT(std::fabs(static_cast<double>((stat.sum_sq - exact) / exact)), bound)
          << kernels->name << " kind " << static_cast<int>(kind);
    }
  }
}

}  // namespace
}  // namespace gsc::cpu
