// SPDX-License-Identifier: Apache-2.0
#include "plain_run.h"

#include <cstring>

#include "memory_budget.h"

namespace engine {
namespace {

bool same(const gsc_tensor &a, const gsc_tensor &b, int64_t size) {
  return std::memcmp(a.data, b.data, static_cast<size_t>(a.count * size)) == 0;
}

}  // namespace

const char *difference_from_plain_run(const gsc_api *api, const Training &split) {
  MemoryBudget memory(INT64_MAX);
  Training plain(memory.hooks(), INT64_MAX);  // whole steps
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.num_threads = 1;
  if (!plain.open(api, options)) return "the plain run cannot begin";
  while (plain.steps() < split.steps()) {
    if (!plain.run_slice()) return "the plain run has failed";
  }
  if (plain.scale() != split.scale()) return "the scale differs from that of a plain run";
  if (plain.skipped() != split.skipped()) return "the skipped steps differ from those of a plain run";
  if (plain.loss() != split.loss()) return "the loss differs from that of a plain run";
  for (int layer = 0; layer < kLayers; ++layer) {
    if (!same(plain.policy().master(layer), split.policy().master(layer), sizeof(float)) ||
        !same(plain.policy().halfs(layer), split.policy().halfs(layer), sizeof(uint16_t))) {
      return "the weights differ from those of a plain run";
    }
  }
  return nullptr;
}

}  // namespace engine
