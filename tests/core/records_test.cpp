// SPDX-License-Identifier: Apache-2.0
//
// Sums that cannot be right, as an all-reduce may leave them: on the CPU the call that joined them is refused before they
// are concluded, so this is what a CUDA device does with them. The order in which sums of chunks are joined, and the
// checksum of a checkpoint.
#include "core/rules/records.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "core/base/checksum.h"
#include "core/device/join.h"

namespace gsc {
namespace {

constexpr ClipRule kClipToOne = {1.0, std::numeric_limits<double>::infinity(), false};

ListRecord concluded(double count, double sum_sq) {
  ListRecord r{};
  r.reduce[0] = count;
  r.reduce[1] = sum_sq;
  conclude_check(r, kClipToOne, nullptr);
  return r;
}

TEST(Records, SumsThatCannotBeRightAreAnOverflow) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  const double sums[][2] = {{kNan, 1.0}, {-1.0, 1.0}, {kInf, 1.0}, {0x1.8p53, 1.0}, {0.0, -1.0}, {0.0, kNan}};
  for (const auto &[count, sum_sq] : sums) {
    const ListRecord r = concluded(count, sum_sq);
    EXPECT_GT(r.found_inf, 0.0F) << count << ", " << sum_sq;
    EXPECT_EQ(r.grad_norm, kInf) << "as of gradients that overflowed";
    EXPECT_EQ(r.clip, 1.0F);
  }
}

TEST(Records, OthersAreTaken) {
  EXPECT_EQ(concluded(0.0, 16.0).found_inf, 0.0F);
  EXPECT_EQ(concluded(0.0, 16.0).grad_norm, 4.0);
  EXPECT_LT(concluded(0.0, 16.0).clip, 0.25F + 1e-6F);
  const ListRecord r = concluded(3.0, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(r.found_inf, 3.0F);
  EXPECT_NE(r.grad_norm, r.grad_norm);
  EXPECT_EQ(r.clip, 1.0F);
}

/// The sums of chunks are joined over 256 lanes: results of one version must be those of the next.
TEST(Join, HasItsOrder) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> any(-1.0, 1.0);  // sums near 0 show every rounding
  for (int trial = 0; trial < 600; ++trial) {
    const int count = std::vector{1, 255, 256, 257, 1000, 4096}[trial % 6];
    std::vector<double> values(count);
    for (double &value : values) value = any(random);
    std::vector<double> lanes(256, 0.0);
    for (size_t i = 0; i < values.size(); ++i) lanes[i % 256] += values[i];
    for (size_t width = 128; width > 0; width /= 2) {
      for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    EXPECT_EQ(join(count, [&](int64_t i) { return values[i]; }), lanes[0]) << count;
  }
}

/// The published results of XXH64 for these inputs, by another implementation.
TEST(Checksum, IsXxh64) {
  EXPECT_EQ(checksum("", 0), 0xef46db3751d8e999u);
  EXPECT_EQ(checksum("abc", 3), 0x44bc2cf5ad770999u);
  unsigned char bytes[222];
  for (unsigned i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + i / 256);
  const std::pair<int64_t, uint64_t> kKnown[] = {{7, 0xd734a6b26f3da63e},   {31, 0x0f187c62b1e722b7},
                                                 {32, 0x91b0cb0931a8c629},  {63, 0x219110bf13e2fa26},
                                                 {101, 0x42312f4d55d9bd17}, {222, 0x5772227269f0e2d8}};
  for (const auto &[size, hash] : kKnown) EXPECT_EQ(checksum(bytes, size), hash) << size;
}

}  // namespace
}  // namespace gsc
