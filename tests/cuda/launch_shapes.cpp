// SPDX-License-Identifier: Apache-2.0
//
// Prints the launch shapes that the library chooses, for benchmarks/gpu/model.py. An input line is a number of
// multiprocessors and the elements of each tensor; an output line is the elements per chunk, the warps that share a
// chunk, and the teams in the grid.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "core/cuda/teams.h"

constexpr int64_t kBlocks = 4;  // of a check and of a step on a multiprocessor, from sm_90 on

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    int64_t units = 0;
    in >> units;
    std::vector<gsc_tensor> tensors;
    for (int64_t count = 0; in >> count;) {
      tensors.push_back({});
      tensors.back().count = count;
      tensors.back().dtype = GSC_FP32;
    }
    gsc::Plan plan(std::pmr::new_delete_resource());
    plan.build(tensors.data(), static_cast<int64_t>(tensors.size()), 1);
    gsc::Vec<int64_t> shares(std::pmr::new_delete_resource());
    const int64_t warps = gsc::cuda::choose_warps(plan, units, shares);
    const int64_t blocks = gsc::cuda::blocks_for(plan.chunk_count(), warps, units * kBlocks);
    std::printf("%lld %lld %lld\n", static_cast<long long>(plan.chunk_elements()), static_cast<long long>(warps),
                static_cast<long long>(blocks * (gsc::cuda::kWarps / warps)));
    std::fflush(stdout);
  }
  return 0;
}
