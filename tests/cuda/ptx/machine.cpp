// SPDX-License-Identifier: Apache-2.0
//
// The scheduler: every thread of the resident blocks is a fiber with its own stack. At random instructions, and at
// every barrier, it switches to a random runnable thread of any block, so that blocks interleave as on a device.
#include "machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <span>
#include <string>

#include "block.h"
#include "tests/cuda/shim/emulation.h"

namespace gsc::cuda::ptx {
namespace {

constexpr std::size_t kStackBytes = std::size_t{64} << 10;
constexpr int kResidentBlocks = 8;
constexpr int kLongestRun = 64;  ///< instructions seen by the machine until the next switch
constexpr int kMaxThreads = kMaxWarps * kLanes;

std::mt19937_64 generator;
const Kernel *running = nullptr;
const char *running_parameters = nullptr;
Thread *current = nullptr;
emulation::Left scheduler;
std::vector<Thread *> runnable;
std::vector<char *> stacks;
unsigned order = 0;
int64_t launches = 0;

const char *source_of(int site) { return site >= 0 ? kSites[site].source : "?"; }

[[noreturn]] void stop(const char *what, int first_site, int second_site) {
  std::fprintf(stderr, "ptx: %s: %s: %s and %s\n", symbols::demangle(running->name).c_str(), what,
               source_of(first_site), source_of(second_site));
  std::abort();
}

void to_scheduler(Thread &t) { emulation::switch_to(t.left, scheduler); }

void make_ready(Thread &t) {
  if (t.ready || t.done) return;
  t.ready = true;
  runnable.push_back(&t);
}

int run_length() { return 1 + static_cast<int>(generator() % kLongestRun); }

/// Opens a warp's barrier once all its live lanes have arrived. A barrier orders memory; a shuffle does not.
void open_if_full(Block &block, Warp &warp, bool orders_memory) {
  if (warp.arrived == 0 || warp.arrived != warp.alive) return;
  warp.arrived = 0;
  warp.site = -1;
  ++warp.generation;
  if (orders_memory) ++warp.epoch;
  for (Thread &t : block.threads) {
    if (t.warp == &warp && &t != current) make_ready(t);
  }
}

void open_if_full(Block &block) {
  if (block.arrived == 0 || block.arrived != block.alive) return;
  block.arrived = 0;
  block.site = -1;
  ++block.generation;
  ++block.epoch;
  for (Thread &t : block.threads) {
    // What a fence has made visible to one thread, a barrier makes visible to all.
    block.fenced_at = std::max(block.fenced_at, t.fenced_at);
    if (&t != current) make_ready(t);
  }
}

void fiber_main() {
  Thread &t = *current;
  running->run(t, running_parameters);
  t.done = true;
  Block &block = *t.block;
  if (t.warp->arrived != 0) stop("a lane has returned while others of its warp wait", t.warp->site, -1);
  if (block.arrived != 0) stop("a thread has returned while others of its block wait", block.site, -1);
  t.warp->alive &= ~(1U << t.lane);
  --block.alive;
  to_scheduler(t);
  std::abort();
}

/// Waits for all lanes of the warp.
void meet_warp(Thread &t, uint32_t mask, int site, bool orders_memory) {
  Warp &warp = *t.warp;
  if (mask != kAllLanes || warp.alive != kAllLanes) fault(t, site, "not all lanes of the warp take part", mask, 0);
  if (warp.arrived != 0 && warp.site != site) stop("a warp waits in two places", warp.site, site);
  warp.site = site;
  warp.arrived |= 1U << t.lane;
  const unsigned generation = warp.generation;
  open_if_full(*t.block, warp, orders_memory);
  while (warp.generation == generation) {
    t.ready = false;
    to_scheduler(t);
  }
}

template <typename F>
uint32_t shuffle(Thread &t, uint32_t value, uint32_t c, uint32_t mask, bool &ok, int site, const F &source_of_lane) {
  Warp &warp = *t.warp;
  // Two sets, so that a lane that runs ahead does not write over what a late one has yet to read.
  uint32_t *values = warp.values[warp.generation % 2];
  values[t.lane] = value;
  meet_warp(t, mask, site, false);
  const auto lane = static_cast<uint32_t>(t.lane);
  const uint32_t segment = c >> 8 & 31;
  const uint32_t clamp = c & 31;
  const uint32_t last = (lane & segment) | (clamp & ~segment);
  const uint32_t source = source_of_lane(lane, segment);
  ok = source <= last;
  return values[ok ? source : lane];
}

void start(Block &block, int slot, int64_t index, int64_t blocks, int threads, int multiprocessors) {
  // In place, because the memory of a block is large and used again.
  block.threads.assign(threads, Thread{});
  block.warps.assign((threads + kLanes - 1) / kLanes, Warp{});
  block.arrived = 0;
  block.alive = threads;
  block.site = -1;
  block.generation = 0;
  block.epoch = 1;
  block.fenced_at = 0;
  block.seen.clear();
  // What is not written is not zero.
  block.shared.assign(running->shared_bytes, static_cast<char>(0xcd));
  block.touches.assign(block.shared.size(), Touch{});
  block.multiprocessor = static_cast<int>(index % multiprocessors);
  for (int i = 0; i < threads; ++i) {
    Thread &t = block.threads[i];
    t.index = static_cast<uint32_t>(i);
    t.block_threads = static_cast<uint32_t>(threads);
    t.block_index = static_cast<uint32_t>(index);
    t.grid_blocks = static_cast<uint32_t>(blocks);
    t.lane = i % kLanes;
    t.block = &block;
    t.warp = &block.warps[i / kLanes];
    t.warp->alive |= 1U << t.lane;
    t.budget = run_length();
    emulation::prepare(t.left, stacks[slot * kMaxThreads + i], kStackBytes, fiber_main);
    make_ready(t);
  }
}

void reserve_stacks(std::size_t count) {
  while (stacks.size() < count) {
    void *memory =
        mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    stacks.push_back(static_cast<char *>(memory));
  }
}

/// Runs the grid to its end.
void run_grid(int64_t blocks, int threads, int multiprocessors) {
  const int slots = static_cast<int>(std::min<int64_t>(blocks, kResidentBlocks));
  reserve_stacks(static_cast<std::size_t>(slots * kMaxThreads));
  std::vector<int64_t> sequence(blocks);
  std::iota(sequence.begin(), sequence.end(), int64_t{0});
  std::shuffle(sequence.begin(), sequence.end(), generator);
  static std::vector<Block> all(kResidentBlocks);
  const std::span resident(all.data(), slots);
  std::size_t next = 0;
  // In some launches stores leave soon, in others hardly before a fence.
  const uint64_t drain_every = uint64_t{4} << 3 * (generator() % 4);
  const Block *starved = &resident[generator() % resident.size()];
  runnable.clear();
  for (int slot = 0; slot < slots; ++slot) {
    start(resident[slot], slot, sequence[next++], blocks, threads, multiprocessors);
  }
  while (!runnable.empty()) {
    // For a while one block hardly runs, and the others overtake it wherever it stands.
    if (generator() % 4096 == 0) starved = &resident[generator() % resident.size()];
    std::size_t pick = generator() % runnable.size();
    for (int tries = 0; tries < 8 && runnable[pick]->block == starved; ++tries) pick = generator() % runnable.size();
    Thread &t = *runnable[pick];
    runnable[pick] = runnable.back();
    runnable.pop_back();
    t.ready = false;
    current = &t;
    emulation::switch_to(scheduler, t.left);
    current = nullptr;
    if (options().weak && generator() % drain_every == 0) {
      Block &block = resident[generator() % resident.size()];
      drain(block, block.order.size() - std::min<std::size_t>(block.order.size(), 1 + generator() % 64));
    }
    Block &block = *t.block;
    if (!t.done || block.alive > 0) continue;
    drain(block, 0);
    if (next < sequence.size()) {
      start(block, static_cast<int>(&block - resident.data()), sequence[next++], blocks, threads, multiprocessors);
    }
  }
  for (const Block &block : resident) {
    if (block.alive > 0) stop("deadlock: threads wait for ever", block.site, block.warps[0].site);
  }
}

/// The kernel's name without namespaces and arguments: "apply_kernel" for every formula.
std::string short_name(const Kernel &kernel) {
  const std::string name = symbols::demangle(kernel.name);
  const std::string head = name.substr(0, name.find_first_of("<("));
  return head.substr(head.find_last_of(": ") + 1);
}

/// Calls f(site, "source line what kernel") for every barrier and fence.
template <typename F>
void for_each_barrier(const F &f) {
  for (int k = 0; k < kKernelCount; ++k) {
    for (int s = kKernels[k].first_site; s < kKernels[k].last_site; ++s) {
      const std::string what = kSites[s].what;
      if (what == "bar" || what == "bar.warp" || what == "membar") {
        f(s, kSites[s].source + (" " + what) + " " + short_name(kKernels[k]));
      }
    }
  }
}

Options read_options() {
  const auto text = [](const char *name) { return std::getenv(name); };
  Options o;
  if (const char *seed = text("PTX_SEED")) o.seed = std::strtoull(seed, nullptr, 10);
  if (const char *weak = text("PTX_WEAK")) o.weak = std::atoi(weak) != 0;
  if (const char *drop = text("PTX_DROP")) {
    const std::string wanted = drop;
    for_each_barrier([&](int site, const std::string &line) {
      if (wanted == line || wanted == source_of(site)) o.dropped.insert(site);
    });
    if (o.dropped.empty()) {
      std::fprintf(stderr, "ptx: PTX_DROP: there is no barrier or fence at %s\n", drop);
      std::abort();
    }
  }
  if (text("PTX_LIST") != nullptr) {
    std::set<std::string> lines;
    for_each_barrier([&](int, const std::string &line) { lines.insert(line); });
    for (const std::string &line : lines) std::printf("%s\n", line.c_str());
    std::exit(0);
  }
  return o;
}

// Before main, so that PTX_LIST runs no test.
const Options environment = read_options();

const Kernel &kernel_at(const void *address) {
  static std::unordered_map<const void *, const Kernel *> known;
  const Kernel *&kernel = known[address];
  if (kernel != nullptr) return *kernel;
  const std::string name = symbols::name_of(address);
  for (int i = 0; i < kKernelCount; ++i) {
    if (symbols::demangle(kKernels[i].name) == name) kernel = &kKernels[i];
  }
  if (kernel == nullptr) {
    std::fprintf(stderr, "ptx: no kernel is called %s\n", name.c_str());
    std::abort();
  }
  return *kernel;
}

}  // namespace

const Options &options() { return environment; }
std::mt19937_64 &random_numbers() { return generator; }

bool is_dropped(int site) { return environment.dropped.count(site) != 0; }

void tick(Thread &t) {
  if (--t.budget > 0) return;
  t.budget = run_length();
  t.ready = true;
  runnable.push_back(&t);
  to_scheduler(t);
}

void fault(const Thread &t, int site, const char *what, uint64_t address, std::size_t bytes) {
  std::fprintf(stderr, "ptx: %s: %s: %zu bytes at 0x%llx, block %u, thread %u, %s in %s\n",
               symbols::demangle(running->name).c_str(), what, bytes, static_cast<unsigned long long>(address),
               t.block_index, t.index, kSites[site].what, source_of(site));
  std::abort();
}

void block_barrier(Thread &t, int site) {
  if (is_dropped(site)) return;
  Block &block = *t.block;
  if (block.arrived != 0 && block.site != site) stop("a block waits in two places", block.site, site);
  block.site = site;
  ++block.arrived;
  const unsigned generation = block.generation;
  open_if_full(block);
  while (block.generation == generation) {
    t.ready = false;
    to_scheduler(t);
  }
}

void warp_barrier(Thread &t, uint32_t mask, int site) {
  if (!is_dropped(site)) meet_warp(t, mask, site, true);
}

uint32_t shuffle_bfly(Thread &t, uint32_t value, uint32_t b, uint32_t c, uint32_t mask, bool &ok, int site) {
  return shuffle(t, value, c, mask, ok, site, [b](uint32_t lane, uint32_t) { return lane ^ (b & 31); });
}
uint32_t shuffle_down(Thread &t, uint32_t value, uint32_t b, uint32_t c, uint32_t mask, bool &ok, int site) {
  return shuffle(t, value, c, mask, ok, site, [b](uint32_t lane, uint32_t) { return lane + (b & 31); });
}
uint32_t shuffle_idx(Thread &t, uint32_t value, uint32_t b, uint32_t c, uint32_t mask, bool &ok, int site) {
  return shuffle(t, value, c, mask, ok, site,
                 [b](uint32_t lane, uint32_t segment) { return (lane & segment) | (b & 31 & ~segment); });
}

}  // namespace gsc::cuda::ptx

// What the launchers and the tests call: the place of the shim's emulation.cpp.
namespace gsc::cuda::emulation {

Index thread_index{};
Index block_index{};
Index block_size{};
Index grid_size{};
// The kernels' host versions are compiled for their addresses only.
void block_barrier() { std::abort(); }
void warp_barrier() { std::abort(); }
void exchange(const void *, void *, std::size_t, int) { std::abort(); }

void set_order(unsigned value) { ptx::order = value; }
int64_t launch_count() { return ptx::launches; }

cudaError_t launch(const void *address, int64_t blocks, int threads, cudaStream_t stream,
                   const void *const *arguments) {
  if (fails("cudaLaunchKernel")) return failure();
  if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
  const ptx::Kernel &kernel = ptx::kernel_at(address);
  if (threads > ptx::kMaxThreads) std::abort();
  ++ptx::launches;
  alignas(16) char parameters[4096] = {};
  for (int i = 0; i < kernel.parameter_count; ++i) {
    std::memcpy(parameters + kernel.parameters[i].offset, arguments[i], kernel.parameters[i].size);
  }
  const MemoryAccess access;
  ptx::running = &kernel;
  ptx::running_parameters = parameters;
  std::seed_seq seed{ptx::environment.seed, uint64_t{ptx::order}, static_cast<uint64_t>(ptx::launches)};
  ptx::generator.seed(seed);
  ptx::reset_caches(multiprocessor_count());
  ptx::run_grid(blocks, threads, multiprocessor_count());
  return cudaSuccess;
}

}  // namespace gsc::cuda::emulation
