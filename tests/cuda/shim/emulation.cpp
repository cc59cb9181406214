// SPDX-License-Identifier: Apache-2.0
//
// Every thread of a block is a fiber that runs until it waits at a barrier. A barrier opens when all threads that have
// not returned are there; if no thread can run, some never reach the barrier, and the program ends with a message.
#include "emulation.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>

#include "fake_state.h"
#include "fiber.h"

namespace gsc::cuda::emulation {

Index thread_index{};
Index block_index{};
Index block_size{};
Index grid_size{};

namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr int kLanes = 32;

struct Barrier {
  int arrived = 0;
  int alive = 0;
  unsigned generation = 0;
  void open_if_full() {
    if (alive > 0 && arrived == alive) {
      arrived = 0;
      ++generation;
    }
  }
};

struct Fiber {
  Left left;
  std::vector<char> stack;
  const Barrier *waiting_at = nullptr;
  unsigned generation = 0;
  bool done = true;
};

struct Warp {
  Barrier barrier;
  alignas(16) char slots[2][kLanes][16];
};

std::vector<Fiber> fibers;
std::vector<Warp> warps;
Barrier block;
Left scheduler;
const std::function<void()> *running = nullptr;
unsigned order = 0;
int64_t launches = 0;

Warp &my_warp() { return warps[thread_index.x / kLanes]; }

void wait_at(Barrier &barrier) {
  Fiber &self = fibers[thread_index.x];
  const unsigned me = thread_index.x;
  self.waiting_at = &barrier;
  self.generation = barrier.generation;
  ++barrier.arrived;
  barrier.open_if_full();
  while (barrier.generation == self.generation) {
    switch_to(self.left, scheduler);
    thread_index.x = me;
  }
  self.waiting_at = nullptr;
}

void fiber_main() {
  (*running)();
  Fiber &self = fibers[thread_index.x];
  self.done = true;
  for (Barrier *barrier : {&block, &my_warp().barrier}) {
    --barrier->alive;
    barrier->open_if_full();
  }
  switch_to(self.left, scheduler);
  std::abort();
}

std::vector<int64_t> sequence(int64_t count, std::mt19937 &random) {
  std::vector<int64_t> result(count);
  std::iota(result.begin(), result.end(), int64_t{0});
  if (order == 1) std::reverse(result.begin(), result.end());
  if (order > 1) std::shuffle(result.begin(), result.end(), random);
  return result;
}

void run_block(int threads, const std::vector<int64_t> &turns) {
  block = Barrier{};
  block.alive = threads;
  for (Warp &warp : warps) warp.barrier = Barrier{};
  for (int t = 0; t < threads; ++t) {
    Fiber &fiber = fibers[t];
    fiber.done = false;
    fiber.waiting_at = nullptr;
    ++warps[t / kLanes].barrier.alive;
    prepare(fiber.left, fiber.stack.data(), fiber.stack.size() / 16 * 16, fiber_main);
  }
  for (int left = threads; left > 0;) {
    bool progress = false;
    for (const int64_t t : turns) {
      Fiber &fiber = fibers[t];
      if (fiber.done || (fiber.waiting_at != nullptr && fiber.waiting_at->generation == fiber.generation)) continue;
      progress = true;
      thread_index.x = static_cast<unsigned>(t);
      switch_to(scheduler, fiber.left);
      if (fiber.done) --left;
      if (order == 1) break;  // from the top again: the first that can go on always does
    }
    if (!progress) {
      std::fprintf(stderr, "emulation: block %u is stuck: a barrier that not all threads reach\n", block_index.x);
      std::abort();
    }
  }
}

}  // namespace

void block_barrier() { wait_at(block); }
void warp_barrier() { wait_at(my_warp().barrier); }

void exchange(const void *mine, void *theirs, size_t bytes, int source) {
  Warp &warp = my_warp();
  // Two sets of slots, so that a lane that runs ahead does not write over what a late one has yet to read.
  const unsigned set = warp.barrier.generation % 2;
  std::memcpy(warp.slots[set][thread_index.x % kLanes], mine, bytes);
  wait_at(warp.barrier);
  std::memcpy(theirs, warp.slots[set][source], bytes);
}

static void run_grid(int64_t blocks, int threads, const std::function<void()> &body) {
  const MemoryAccess access;
  fibers.resize(std::max(fibers.size(), static_cast<size_t>(threads)));
  for (Fiber &fiber : fibers) fiber.stack.resize(kStackBytes);
  warps.resize((threads + kLanes - 1) / kLanes);
  running = &body;
  block_size.x = static_cast<unsigned>(threads);
  grid_size.x = static_cast<unsigned>(blocks);
  std::mt19937 random(order);
  const std::vector<int64_t> turns = sequence(threads, random);
  for (const int64_t b : sequence(blocks, random)) {
    block_index.x = static_cast<unsigned>(b);
    run_block(threads, turns);
  }
}

cudaError_t run(int64_t blocks, int threads, cudaStream_t stream, const std::function<void()> &body) {
  if (fails("cudaLaunchKernel")) return failure();
  if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
  if (is_implicit(stream)) return refusal(cudaErrorStreamCaptureImplicit);
  ++launches;
  enqueue_work(stream, [=] { run_grid(blocks, threads, body); });
  return cudaSuccess;
}

void set_order(unsigned value) { order = value; }
int64_t launch_count() { return launches; }
int64_t last_grid() { return grid_size.x; }

}  // namespace gsc::cuda::emulation
