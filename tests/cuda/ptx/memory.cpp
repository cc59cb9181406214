// SPDX-License-Identifier: Apache-2.0
//
// Every access is checked for alignment and bounds. Shared memory is checked for races: two threads access a byte, at
// least one writes, and neither a block barrier nor, within a warp, a warp barrier lies between. With PTX_WEAK, global
// memory is as weak as PTX allows for the library's uses: a block's stores wait in a buffer and reach memory late and
// in any order, each multiprocessor has a cache that may return stale data, and a load may take place early. Only a
// fence empties the cache and, of the buffer, what the thread wrote and what its block wrote before the last barrier, and
// holds later loads back; atomics act on memory itself.
#include <algorithm>
#include <array>
#include <cstdio>

#include "block.h"
#include "tests/cuda/shim/emulation.h"

namespace gsc::cuda::ptx {
namespace {

constexpr std::size_t kLargestBuffer = 3000;  ///< maximum number of bytes in a block's store buffer

struct Cache {
  std::unordered_map<uintptr_t, std::array<uint8_t, kSectorBytes>> sectors;
};
struct Multiprocessor {
  Cache l1;
  Cache read_only;
};
std::vector<Multiprocessor> multiprocessors;

/// A byte of memory before it was written.
struct Written {
  uintptr_t address;
  std::size_t previous;  ///< last_write_of this address before
  uint32_t block;
  uint8_t before;
};
/// All of them during the launch, in order.
std::vector<Written> history;
constexpr std::size_t kFurthest = 2048;  ///< a load is early by at most this many of them
/// Of sectors by a hash: the size of the history after the last write; 0: never written.
std::array<std::size_t, std::size_t{1} << 14> written_at;

uintptr_t sector_of(uintptr_t address) { return address & ~(kSectorBytes - 1); }
uint8_t *byte_at(uintptr_t address) { return reinterpret_cast<uint8_t *>(address); }
std::size_t &last_write_of(uintptr_t address) { return written_at[address / kSectorBytes % written_at.size()]; }

void remember(const Block &block, uintptr_t address) {
  history.push_back({address, last_write_of(address), block.threads[0].block_index, *byte_at(address)});
  last_write_of(address) = history.size();
}

void require_aligned(const Thread &t, uintptr_t address, std::size_t bytes, int site) {
  if (address % bytes != 0) fault(t, site, "misaligned access", address, bytes);
}

/// The module's own constants lie in this program.
bool is_constant(uintptr_t address) {
  extern char begin_of_program asm("__executable_start");
  extern char end_of_program asm("_end");
  return address >= reinterpret_cast<uintptr_t>(&begin_of_program) &&
         address < reinterpret_cast<uintptr_t>(&end_of_program);
}

void require_global(const Thread &t, uintptr_t address, std::size_t bytes, int site) {
  require_aligned(t, address, bytes, site);
  if (!emulation::is_cuda_memory(reinterpret_cast<const void *>(address), bytes) && !is_constant(address)) {
    fault(t, site, "access outside of any allocation", address, bytes);
  }
}

char *require_shared(const Thread &t, uintptr_t offset, std::size_t bytes, int site) {
  require_aligned(t, offset, bytes, site);
  std::vector<char> &shared = t.block->shared;
  if (offset > shared.size() || shared.size() - offset < bytes) {
    fault(t, site, "access outside of shared memory", offset, bytes);
  }
  return shared.data() + offset;
}

int warp_of(const Thread &t) { return static_cast<int>(t.index) / kLanes; }

/// Whether this thread made the last write of a byte, or a barrier lies between.
bool follows_write(const Thread &t, const Touch &touch) {
  return touch.writer == kNobody || touch.writer == static_cast<int>(t.index) ||
         touch.write_block_epoch != t.block->epoch ||
         (touch.write_warp == warp_of(t) && touch.write_warp_epoch != t.warp->epoch);
}

/// Fails if another thread's access is unordered with respect to this one.
void watch_read(const Thread &t, uintptr_t offset, std::size_t bytes, int site) {
  const int warp = warp_of(t);
  for (std::size_t i = 0; i < bytes; ++i) {
    Touch &touch = t.block->touches[offset + i];
    if (!follows_write(t, touch)) {
      fault(t, site, "race in shared memory: read of what another thread has just written", offset + i, 1);
    }
    if (touch.read_block_epoch != t.block->epoch) {
      touch.read_block_epoch = t.block->epoch;
      touch.reading_warps = 0;
    }
    const auto w = static_cast<std::size_t>(warp);
    if ((touch.reading_warps >> warp & 1) == 0 || touch.read_warp_epoch[w] != t.warp->epoch) {
      touch.read_warp_epoch[w] = t.warp->epoch;
      touch.reading_lanes[w] = 0;
    }
    touch.reading_warps |= 1U << warp;
    touch.reading_lanes[w] |= 1U << t.lane;
  }
}

/// The same for a write. Atomic operations need no barrier between them.
void watch_write(const Thread &t, uintptr_t offset, std::size_t bytes, bool atomic, int site) {
  const int warp = warp_of(t);
  const auto w = static_cast<std::size_t>(warp);
  for (std::size_t i = 0; i < bytes; ++i) {
    Touch &touch = t.block->touches[offset + i];
    const bool follows = follows_write(t, touch);
    if (!follows && !(atomic && touch.atomic)) {
      fault(t, site, "race in shared memory: write over what another thread has just written", offset + i, 1);
    }
    if (touch.read_block_epoch == t.block->epoch) {
      const bool others = (touch.reading_warps & ~(1U << warp)) != 0;
      const bool own = (touch.reading_warps >> warp & 1) != 0 && touch.read_warp_epoch[w] == t.warp->epoch &&
                       (touch.reading_lanes[w] & ~(1U << t.lane)) != 0;
      if (others || own) {
        fault(t, site, "race in shared memory: write over what another thread has just read", offset + i, 1);
      }
    }
    touch.writer = follows ? static_cast<int>(t.index) : kSeveral;
    touch.write_warp = follows || touch.write_warp == warp ? warp : kSeveral;
    touch.atomic = atomic;
    touch.write_block_epoch = t.block->epoch;
    touch.write_warp_epoch = t.warp->epoch;
  }
}

void drain_one(Block &block, std::size_t i) {
  const uintptr_t address = block.order[i];
  const auto it = block.pending.find(address);
  remember(block, address);
  *byte_at(address) = it->second.value;
  // A thread reads what it has written itself, also once it has left the buffer.
  Cache &cache = multiprocessors[block.multiprocessor].l1;
  const auto line = cache.sectors.find(sector_of(address));
  if (line != cache.sectors.end()) line->second[address % kSectorBytes] = it->second.value;
  block.pending.erase(it);
  --block.pending_near(address);
  block.order[i] = block.order.back();
  block.order.pop_back();
}

/// Commits the pending stores selected by `which(address, store)`.
template <typename F>
void drain_if(Block &block, const F &which) {
  for (std::size_t i = 0; i < block.order.size();) {
    if (which(block.order[i], block.pending.at(block.order[i]))) {
      drain_one(block, i);
    } else {
      ++i;
    }
  }
}

/// Loads [first, last) of one sector early, by chance, if other blocks have written there since the thread's last
/// fence. Neither the own block's writes nor what it has already read are undone.
bool load_early(Thread &t, uintptr_t first, uintptr_t last, uint8_t *to) {
  Block &block = *t.block;
  std::size_t from = std::max(t.fenced_at, block.fenced_at);
  if (last_write_of(first) <= from) return false;
  const auto seen = block.seen.find(sector_of(first));
  if (seen != block.seen.end()) from = std::max(from, seen->second);
  from = std::max(from, history.size() - std::min(history.size(), kFurthest));
  if (from == history.size() || random_numbers()() % 2 == 0) return false;
  std::memcpy(to, byte_at(first), last - first);
  const std::size_t when = from + random_numbers()() % (history.size() - from);
  uint32_t own = 0;
  // Bytes of a sector have the same last_write_of.
  for (std::size_t size = last_write_of(first); size > when; size = history[size - 1].previous) {
    const Written &w = history[size - 1];
    if (w.address < first || w.address >= last) continue;
    const std::size_t byte = w.address - first;
    if (w.block == t.block_index) own |= 1U << byte;
    if ((own >> byte & 1) == 0) to[byte] = w.before;
  }
  block.seen[sector_of(first)] = when;
  return true;
}

void weak_load(Thread &t, Cache &cache, uintptr_t address, uint8_t *to, std::size_t bytes) {
  Block &block = *t.block;
  for (uintptr_t sector = sector_of(address); sector < address + bytes; sector += kSectorBytes) {
    const uintptr_t first = std::max(sector, address);
    const uintptr_t last = std::min(sector + kSectorBytes, address + bytes);
    auto found = cache.sectors.find(sector);
    // One of four old lines is dropped.
    const bool miss = found == cache.sectors.end() || random_numbers()() % 4 == 0;
    if (miss && load_early(t, first, last, to + (first - address))) {
      cache.sectors.erase(sector);
    } else {
      if (miss) {
        found = cache.sectors.try_emplace(sector).first;
        std::memcpy(found->second.data(), byte_at(sector), kSectorBytes);
        if (last_write_of(sector) != 0) block.seen[sector] = history.size();
      }
      std::memcpy(to + (first - address), found->second.data() + (first - sector), last - first);
    }
    if (block.pending_near(sector) == 0) continue;
    for (uintptr_t a = first; a < last; ++a) {
      const auto store = block.pending.find(a);
      if (store != block.pending.end()) to[a - address] = store->second.value;
    }
  }
}

void weak_store(Thread &t, uintptr_t address, const uint8_t *from, std::size_t bytes) {
  Block &block = *t.block;
  Cache &cache = multiprocessors[block.multiprocessor].l1;
  for (std::size_t i = 0; i < bytes; ++i) {
    const uintptr_t a = address + i;
    const Pending store{from[i], t.index, block.epoch};
    if (block.pending.insert_or_assign(a, store).second) {
      block.order.push_back(a);
      ++block.pending_near(a);
    }
    const auto line = cache.sectors.find(sector_of(a));
    if (line != cache.sectors.end()) line->second[a % kSectorBytes] = from[i];
  }
  drain(block, kLargestBuffer);
}

void load(Thread &t, Cache Multiprocessor::*cache, uintptr_t address, void *to, std::size_t bytes, int site) {
  tick(t);
  require_global(t, address, bytes, site);
  if (options().weak && !is_constant(address)) {
    Multiprocessor &m = multiprocessors[t.block->multiprocessor];
    weak_load(t, m.*cache, address, static_cast<uint8_t *>(to), bytes);
  } else {
    std::memcpy(to, byte_at(address), bytes);
  }
}

/// Whether a generic address is in shared memory.
bool is_shared(const Thread &t, uintptr_t address) {
  return address >= t.shared_address() && address < t.shared_address() + t.block->shared.size();
}

}  // namespace

uint64_t Thread::shared_address() const { return reinterpret_cast<uintptr_t>(block->shared.data()); }

void reset_caches(int count) {
  multiprocessors.assign(count, Multiprocessor{});
  history.clear();
  written_at.fill(0);
}

void drain(Block &block, std::size_t keep) {
  while (block.order.size() > keep) drain_one(block, random_numbers()() % block.order.size());
}

void load_global(Thread &t, uintptr_t address, void *to, std::size_t bytes, int site) {
  load(t, &Multiprocessor::l1, address, to, bytes, site);
}

void load_global_nc(Thread &t, uintptr_t address, void *to, std::size_t bytes, int site) {
  load(t, &Multiprocessor::read_only, address, to, bytes, site);
}

void store_global(Thread &t, uintptr_t address, const void *from, std::size_t bytes, int site) {
  tick(t);
  require_global(t, address, bytes, site);
  if (options().weak) {
    weak_store(t, address, static_cast<const uint8_t *>(from), bytes);
  } else {
    std::memcpy(byte_at(address), from, bytes);
  }
}

void load_shared(Thread &t, uintptr_t offset, void *to, std::size_t bytes, int site) {
  tick(t);
  const char *place = require_shared(t, offset, bytes, site);
  watch_read(t, offset, bytes, site);
  std::memcpy(to, place, bytes);
}

void store_shared(Thread &t, uintptr_t offset, const void *from, std::size_t bytes, int site) {
  tick(t);
  char *place = require_shared(t, offset, bytes, site);
  watch_write(t, offset, bytes, false, site);
  std::memcpy(place, from, bytes);
}

void load_generic(Thread &t, uintptr_t address, void *to, std::size_t bytes, int site) {
  if (is_shared(t, address)) {
    load_shared(t, address - t.shared_address(), to, bytes, site);
  } else {
    load_global(t, address, to, bytes, site);
  }
}

void store_generic(Thread &t, uintptr_t address, const void *from, std::size_t bytes, int site) {
  if (is_shared(t, address)) {
    store_shared(t, address - t.shared_address(), from, bytes, site);
  } else {
    store_global(t, address, from, bytes, site);
  }
}

void *atomic_place_global(Thread &t, uintptr_t address, std::size_t bytes, int site) {
  tick(t);
  require_global(t, address, bytes, site);
  // Stores of the own block to this address come first.
  drain_if(*t.block, [&](uintptr_t a, const Pending &) { return a >= address && a < address + bytes; });
  if (options().weak) {
    for (std::size_t i = 0; i < bytes; ++i) remember(*t.block, address + i);
  }
  return byte_at(address);
}

void *atomic_place_shared(Thread &t, uintptr_t offset, std::size_t bytes, int site) {
  tick(t);
  char *place = require_shared(t, offset, bytes, site);
  watch_write(t, offset, bytes, true, site);
  return place;
}

void fence(Thread &t, int site) {
  tick(t);
  if (!options().weak || is_dropped(site)) return;
  // Fences are cumulative: also what other threads wrote before a barrier at which this one met them.
  drain_if(*t.block,
           [&](uintptr_t, const Pending &store) { return store.thread == t.index || store.epoch != t.block->epoch; });
  multiprocessors[t.block->multiprocessor].l1.sectors.clear();
  t.fenced_at = history.size();
}

}  // namespace gsc::cuda::ptx
