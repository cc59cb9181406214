// SPDX-License-Identifier: Apache-2.0
// Estimates how long a pass takes with teams of a given number of warps. Teams take the chunks in turn, so each team's
// share is known beforehand. A part of the resident warps saturates the memory bus: idle teams cost nothing until fewer
// than that are busy. benchmarks/gpu/model.py simulates the same passes chunk by chunk and shows the loss of a choice.
#include "core/cuda/teams.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "core/cuda/plan.h"

namespace gsc::cuda {
namespace {

// Time for a team to find its next chunk, in bytes that one warp moves meanwhile: 0.6 us.
constexpr double kOverheadBytes = 2048.0;

/// shares[t]: elements of all chunks of team t.
void fill_shares(const Plan &plan, Vec<int64_t> &shares) {
  const auto teams = static_cast<int64_t>(shares.size());
  const auto add = [&](int64_t team, int64_t elements) {
    if (team < teams) shares[static_cast<std::size_t>(team)] += elements;
  };
  // First as differences between neighbours, so that a tensor's cost does not grow with its number of whole chunks.
  std::fill(shares.begin(), shares.end(), int64_t{0});
  for (int64_t i = 0; i < plan.size(); ++i) {
    const int64_t whole = plan.tensor(i).count / plan.chunk_elements();
    const int64_t rest = plan.tensor(i).count % plan.chunk_elements();
    const int64_t first = plan.first_chunk(i) % teams;
    const int64_t last = first + whole % teams;  // of those that get one more; wraps around
    add(0, whole / teams * plan.chunk_elements());
    add(first, plan.chunk_elements());
    add(last, -plan.chunk_elements());
    if (last > teams) {
      add(0, plan.chunk_elements());
      add(last - teams, -plan.chunk_elements());
    }
    const int64_t after = (first + whole) % teams;
    add(after, rest);
    add(after + 1, -rest);
  }
  for (std::size_t t = 1; t < shares.size(); ++t) shares[t] += shares[t - 1];
}

/// Estimated time of a pass, in elements that one warp moves meanwhile.
double estimate(Vec<int64_t> &shares, int64_t chunks, const Pass &pass, int32_t warps) {
  const auto teams = static_cast<int64_t>(shares.size());
  const int64_t saturating = std::clamp<int64_t>(static_cast<int64_t>(pass.saturating) / warps, 1, teams);
  const auto nth = shares.begin() + (saturating - 1);
  std::nth_element(shares.begin(), nth, shares.end(), std::greater<>());
  // The bus stays full while enough teams are busy to saturate it; at the end the longest of these runs alone.
  const int64_t level = *nth;
  int64_t shared = 0;
  for (const int64_t share : shares) shared += std::min(share, level);
  const int64_t longest = *std::max_element(shares.begin(), nth + 1) - level;
  const int64_t rounds = (chunks + teams - 1) / teams;
  return static_cast<double>(shared) / static_cast<double>(saturating * warps) +
         static_cast<double>(longest) / static_cast<double>(warps) +
         kOverheadBytes / pass.element_bytes * static_cast<double>(rounds);
}

}  // namespace

int32_t choose_warps(const Plan &plan, const Pass &pass, Vec<int64_t> &shares) {
  const int64_t chunks = plan.chunk_count();
  int32_t best = kWarps;
  if (chunks == 0) return best;
  double least = std::numeric_limits<double>::infinity();
  for (int32_t warps = kWarps; warps >= 1; warps /= 2) {
    shares.resize(static_cast<std::size_t>(std::min(pass.slots * kWarps / warps, chunks)));
    fill_shares(plan, shares);
    const double time = estimate(shares, chunks, pass, warps);
    if (time < least) {
      least = time;
      best = warps;
    }
  }
  return best;
}

}  // namespace gsc::cuda
