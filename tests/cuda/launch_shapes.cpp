// SPDX-License-Identifier: Apache-2.0
//
// Prints the launch shapes that the library chooses, for benchmarks/gpu/model.py. An input line is the resident blocks of
// a pass on a device, the bytes that its memory bus moves per microsecond, the bytes that the pass moves per element, and
// the elements of each tensor. An output line is the elements per chunk, the warps that share a chunk, and the teams in
// the grid.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "core/cuda/teams.h"

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    gsc::cuda::Pass pass{};
    double bytes_per_us = 0.0;
    in >> pass.slots >> bytes_per_us >> pass.element_bytes;
    pass.saturating = gsc::cuda::saturating_warps(bytes_per_us);
    std::vector<gsc_tensor> tensors;
    for (int64_t count = 0; in >> count;) {
      tensors.push_back({});
      tensors.back().count = count;
      tensors.back().dtype = GSC_FP32;
    }
    gsc::Plan plan(std::pmr::new_delete_resource());
    plan.build(tensors.data(), static_cast<int64_t>(tensors.size()), 1);
    gsc::Vec<int64_t> shares(std::pmr::new_delete_resource());
    const int64_t warps = gsc::cuda::choose_warps(plan, pass, shares);
    const int64_t blocks = gsc::cuda::blocks_for(plan.chunk_count(), warps, pass.slots);
    std::printf("%lld %lld %lld\n", static_cast<long long>(plan.chunk_elements()), static_cast<long long>(warps),
                static_cast<long long>(blocks * (gsc::cuda::kWarps / warps)));
    std::fflush(stdout);
  }
  return 0;
}
