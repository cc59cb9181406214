// SPDX-License-Identifier: Apache-2.0
// Estimates how long a pass takes for each way to cut it. Teams take their chunks, or parts of chunks, in turn, so each
// team's share is known beforehand. The more warps are busy, the more the memory bus moves: n warps get n / (n + half)
// of what it could. While n warps of equal rate are busy, an element of each takes (n + half) / most; summed over a
// pass, all elements count once, and the longest share `half` times more, spread over the warps of its team.
// benchmarks/gpu/model.py simulates the same passes chunk by chunk, and is compared with measured times.
#include "core/cuda/teams.h"

#include <algorithm>
#include <limits>

#include "core/cuda/plan.h"

namespace gsc::cuda {
namespace {

constexpr double kOverhead = 0.6;         // us for a team to find its next chunk
constexpr double kWarpBytesPerUs = 3400;  // of a lone warp: a 16-byte load of 32 lanes four times in flight, for 0.6 us
constexpr double kHalfBytesPerUs = 6000;  // `half` warps move that many each; fits times of an H200
constexpr int64_t kSmallestPart = 16384;  // elements

/// shares[t]: elements of all chunks of team t.
void fill_shares(const Plan &plan, int32_t split, Vec<int64_t> &shares) {
  const auto teams = static_cast<int64_t>(shares.size());
  const int64_t part = plan.chunk_elements() >> split;
  const auto add = [&](int64_t team, int64_t elements) {
    if (team < teams) shares[team] += elements;
  };
  // First as differences between neighbours, so that a tensor's cost does not grow with its number of whole chunks.
  std::fill(shares.begin(), shares.end(), int64_t{0});
  for (int64_t i = 0; i < plan.size(); ++i) {
    const int64_t whole = plan.tensor(i).count / part;
    const int64_t rest = plan.tensor(i).count % part;
    const int64_t first = (plan.first_chunk(i) << split) % teams;
    const int64_t last = first + whole % teams;  // of those that get one more; wraps around
    add(0, whole / teams * part);
    add(first, part);
    add(last, -part);
    if (last > teams) {
      add(0, part);
      add(last - teams, -part);
    }
    const int64_t after = (first + whole) % teams;
    add(after, rest);
    add(after + 1, -rest);
  }
  for (std::size_t t = 1; t < shares.size(); ++t) shares[t] += shares[t - 1];
}

/// Estimated microseconds of a pass.
double estimate(const Plan &plan, const Pass &pass, const Cut &cut, Vec<int64_t> &shares) {
  const int64_t parts = plan.chunk_count() << cut.split;
  shares.resize(std::min(pass.slots * kWarps / cut.warps, parts));
  fill_shares(plan, cut.split, shares);
  const int64_t rounds = (parts - 1) / static_cast<int64_t>(shares.size()) + 1;
  const double longest = static_cast<double>(*std::max_element(shares.begin(), shares.end())) / cut.warps;
  const double half = pass.bytes_per_us / kHalfBytesPerUs;
  const double most = pass.bytes_per_us * (1.0 + half / static_cast<double>(pass.slots * kWarps));
  const double shared = (static_cast<double>(plan.total_elements()) + half * longest) / most;
  return std::max(shared, longest / kWarpBytesPerUs) * pass.element_bytes + kOverhead * static_cast<double>(rounds);
}

}  // namespace

Cut choose_cut(const Plan &plan, const Pass &pass, Vec<int64_t> &shares) {
  Cut best = {kWarps, 0};
  if (plan.chunk_count() == 0) return best;
  double least = std::numeric_limits<double>::infinity();
  for (int32_t split = 0; split == 0 || (pass.in_parts && plan.chunk_elements() >> split >= kSmallestPart); ++split) {
    for (int32_t warps = kWarps; warps >= 1; warps /= 2) {
      const Cut cut = {warps, split};
      const double time = estimate(plan, pass, cut, shares);
      if (time >= least) continue;
      least = time;
      best = cut;
    }
  }
  return best;
}

}  // namespace gsc::cuda
