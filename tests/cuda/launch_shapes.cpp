// SPDX-License-Identifier: Apache-2.0
//
// Prints the launch shapes that the library chooses, for benchmarks/gpu/model.py. An input line is the resident blocks of
// a pass on a device, the bytes that its memory bus moves per microsecond, the bytes that the pass moves per element,
// whether it may take chunks in parts, and the elements of each tensor. An output line is the elements of a chunk, those
// of a part, the warps that share one, and the teams in the grid.
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
    in >> pass.slots >> pass.bytes_per_us >> pass.element_bytes >> pass.in_parts;
    std::vector<gsc_tensor> tensors;
    for (int64_t count = 0; in >> count;) {
      tensors.push_back({});
      tensors.back().count = count;
      tensors.back().dtype = GSC_FP32;
    }
    gsc::Plan plan(std::pmr::new_delete_resource());
    plan.build(tensors.data(), std::ssize(tensors), 1);
    gsc::Vec<int64_t> shares(std::pmr::new_delete_resource());
    const auto [warps, split] = gsc::cuda::choose_cut(plan, pass, shares);
    const int64_t blocks = gsc::cuda::blocks_for(plan.chunk_count() << split, warps, pass.slots);
    const auto elements = static_cast<long long>(plan.chunk_elements());
    std::printf("%lld %lld %d %lld\n", elements, elements >> split, warps,
                static_cast<long long>(blocks * (gsc::cuda::kWarps / warps)));
    std::fflush(stdout);
  }
  return 0;
}
