// SPDX-License-Identifier: Apache-2.0
#include "core/vulkan/memory.h"

#include <algorithm>
#include <cstdio>

namespace gsc::vulkan {
namespace {

constexpr int64_t kAlignment = 256;
constexpr uint64_t kLeastAlignment = 16;  ///< of the caller's buffers
constexpr int64_t kBlockBytes = int64_t{4} << 20;

int64_t round_up(int64_t bytes) { return (std::max<int64_t>(bytes, 1) + kAlignment - 1) & -kAlignment; }
/// The first aligned address of a block, where a part may begin.
uint64_t start_of(const Block &block) { return (block.address + kAlignment - 1) & -static_cast<uint64_t>(kAlignment); }
bool holds(const Block &block, uint64_t address) {
  return address >= block.address && address - block.address < static_cast<uint64_t>(block.bytes);
}

/// The first type of memory among `allowed` with these properties; UINT32_MAX: none.
uint32_t find_type(const VkPhysicalDeviceMemoryProperties &memory, uint32_t allowed, VkMemoryPropertyFlags properties) {
  for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
    if ((allowed >> i & 1U) != 0 && (memory.memoryTypes[i].propertyFlags & properties) == properties) return i;
  }
  return UINT32_MAX;
}

}  // namespace

Memory::~Memory() {
  for (Block &block : blocks_) free_block(block);
}

Block Memory::make_block(int64_t bytes, bool for_host) {
  char what[64];
  std::snprintf(what, sizeof what, "allocating %lld bytes", static_cast<long long>(bytes));
  VkBufferCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.size = static_cast<VkDeviceSize>(bytes);
  info.usage =
      VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  const std::span<const uint32_t> families = device_.compute_families();
  info.sharingMode = families.size() > 1 ? VK_SHARING_MODE_CONCURRENT : VK_SHARING_MODE_EXCLUSIVE;
  info.queueFamilyIndexCount = static_cast<uint32_t>(families.size());
  info.pQueueFamilyIndices = families.data();
  Block block;
  block.bytes = bytes;
  try {
    device_.given().allocate != nullptr ? ask_caller(block, info, for_host, what)
                                        : make_own(block, info, for_host, what);
  } catch (...) {
    free_block(block);
    throw;
  }
  return block;
}

void Memory::ask_caller(Block &block, const VkBufferCreateInfo &info, bool for_host, const char *what) {
  const gscx_vulkan_device &given = device_.given();
  const Argument allocate = kDevice.field("allocate");
  gscx_vulkan_buffer made{};
  int32_t result = VK_SUCCESS;
  const CallbackEnd end =
      call_back([&] { result = given.allocate(given.allocator_user, &info, for_host ? 1 : 0, &made); });
  if (end == CallbackEnd::kOutOfMemory) {
    fail(GSC_ERROR_OUT_OF_MEMORY, kNoArgument, "%s failed: device.allocate threw std::bad_alloc", what);
  }
  if (end == CallbackEnd::kThrew) fail(GSC_ERROR_CALLBACK, allocate, "threw an exception");
  check(static_cast<VkResult>(result), what, "device.allocate");
  block.buffer = static_cast<VkBuffer>(made.buffer);
  block.address = made.address;
  block.mapped = made.mapped;
  block.allocation = made.allocation;
  hold(block, block.bytes);
  const char *const missing = made.buffer == nullptr               ? "a buffer"
                              : made.address == 0                  ? "an address"
                              : for_host && made.mapped == nullptr ? "a mapped address, which was asked for"
                                                                   : nullptr;
  if (missing != nullptr) fail(GSC_ERROR_CALLBACK, allocate, "returned VK_SUCCESS without %s", missing);
  if (made.address % kLeastAlignment != 0) {
    fail(GSC_ERROR_CALLBACK, allocate, "returned the address %#llx, which is not aligned to %d bytes",
         static_cast<unsigned long long>(made.address), static_cast<int>(kLeastAlignment));
  }
}

void Memory::hold(Block &block, int64_t bytes) {
  block.held = bytes;
  held_.fetch_add(bytes, std::memory_order_relaxed);
}

void Memory::make_own(Block &block, const VkBufferCreateInfo &info, bool for_host, const char *what) {
  const Functions &f = device_.functions();
  GSC_VK_CALL(what, f, CreateBuffer, device_.get(), &info, nullptr, &block.buffer);
  VkMemoryRequirements needs;
  f.GetBufferMemoryRequirements(device_.get(), block.buffer, &needs);
  const uint32_t type = find_type(device_.memory(), needs.memoryTypeBits,
                                  for_host ? VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
                                           : VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
  if (type == UINT32_MAX) {
    fail(GSC_ERROR_UNAVAILABLE, kNoArgument, "the Vulkan device has no %s memory for storage buffers",
         for_host ? "host-coherent" : "device-local");
  }
  VkMemoryAllocateFlagsInfo flags{};
  flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  VkMemoryAllocateInfo memory{};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  memory.pNext = &flags;
  memory.allocationSize = needs.size;
  memory.memoryTypeIndex = type;
  GSC_VK_CALL(what, f, AllocateMemory, device_.get(), &memory, nullptr, &block.memory);
  hold(block, static_cast<int64_t>(needs.size));
  GSC_VK_CALL(what, f, BindBufferMemory, device_.get(), block.buffer, block.memory, 0);
  if (for_host) GSC_VK_CALL(what, f, MapMemory, device_.get(), block.memory, 0, VK_WHOLE_SIZE, 0, &block.mapped);
  VkBufferDeviceAddressInfo address{};
  address.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
  address.buffer = block.buffer;
  block.address = f.GetBufferDeviceAddress(device_.get(), &address);
}

Block Memory::make_mapped(int64_t bytes) { return make_block(bytes, true); }

void Memory::free_block(Block &block) noexcept {
  held_.fetch_sub(block.held, std::memory_order_relaxed);
  const gscx_vulkan_device &given = device_.given();
  if (given.allocate != nullptr) {
    const gscx_vulkan_buffer made{block.buffer, block.address, block.mapped, block.allocation};
    if (block.buffer != nullptr) call_back([&] { given.release(given.allocator_user, &made); });
    block = {};
    return;
  }
  device_.functions().DestroyBuffer(device_.get(), block.buffer, nullptr);
  device_.functions().FreeMemory(device_.get(), block.memory, nullptr);
  block = {};
}

uint64_t Memory::take(int64_t bytes) {
  bytes = round_up(bytes);
  // Taken parts lie between gaps: there is one more gap than parts in each block, at most.
  gaps_.reserve(static_cast<std::size_t>(parts_) + blocks_.size() + 3);
  blocks_.reserve(blocks_.size() + 1);
  // A small part would hold all of a large block, or of one that could be released.
  const auto fits = [&](const Gap &g, bool is_used) {
    const Block &block = *block_of(g.address);
    return g.bytes >= bytes && (block.bytes > kBlockBytes) == (bytes + kAlignment > kBlockBytes) &&
           (block.parts > 0) == is_used;
  };
  auto gap = gaps_.end();
  for (const bool is_used : {true, false}) {
    if (gap == gaps_.end()) {
      gap = std::find_if(gaps_.begin(), gaps_.end(), [&](const Gap &g) { return fits(g, is_used); });
    }
  }
  if (gap == gaps_.end()) {
    blocks_.push_back(make_block(std::max(bytes + kAlignment, kBlockBytes), false));
    const Block &made = blocks_.back();
    const uint64_t start = start_of(made);
    const auto aligned = static_cast<int64_t>(made.address + static_cast<uint64_t>(made.bytes) - start) & -kAlignment;
    const auto above = [&](const Gap &g) { return g.address > start; };
    gap = gaps_.insert(std::find_if(gaps_.begin(), gaps_.end(), above), {start, aligned});
  }
  const uint64_t address = gap->address;
  gap->address += static_cast<uint64_t>(bytes);
  gap->bytes -= bytes;
  if (gap->bytes == 0) gaps_.erase(gap);
  ++parts_;
  ++block_of(address)->parts;
  return address;
}

bool Memory::give_back(uint64_t address, int64_t bytes) noexcept {
  bytes = round_up(bytes);
  --parts_;
  Block &block = *block_of(address);
  --block.parts;
  const auto is_above = [&](const Gap &g) { return g.address > address; };
  auto next = std::find_if(gaps_.begin(), gaps_.end(), is_above);
  // Blocks are apart, or joined only where both ends are gaps of one block: addresses of two may touch.
  const auto starts_block = [&](uint64_t at) {
    return std::any_of(blocks_.begin(), blocks_.end(), [&](const Block &b) { return start_of(b) == at; });
  };
  const uint64_t end = address + static_cast<uint64_t>(bytes);
  const bool joins_next = next != gaps_.end() && next->address == end && !starts_block(end);
  const bool joins_last = next != gaps_.begin() &&
                          (next - 1)->address + static_cast<uint64_t>((next - 1)->bytes) == address &&
                          !starts_block(address);
  if (joins_last) {
    (next - 1)->bytes += bytes + (joins_next ? next->bytes : 0);
    if (joins_next) gaps_.erase(next);
  } else if (joins_next) {
    *next = {address, next->bytes + bytes};
  } else {
    gaps_.insert(next, {address, bytes});
  }
  if (block.parts > 0) return false;
  return block.bytes > kBlockBytes ||
         std::any_of(blocks_.begin(), blocks_.end(), [&](const Block &b) { return b.parts == 0 && &b != &block; });
}

bool Memory::release(Which which) noexcept {
  bool keeps = which == Which::kNotNeeded;
  const std::size_t before = blocks_.size();
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const bool is_kept = keeps && block->parts == 0 && block->bytes <= kBlockBytes;
    if (is_kept) keeps = false;
    if (is_kept || block->parts > 0) {
      ++block;
      continue;
    }
    std::erase_if(gaps_, [&](const Gap &gap) { return holds(*block, gap.address); });
    free_block(*block);
    block = blocks_.erase(block);
  }
  return blocks_.size() < before;
}

Block *Memory::block_of(uint64_t address) {
  const auto found =
      std::find_if(blocks_.begin(), blocks_.end(), [&](const Block &block) { return holds(block, address); });
  return found != blocks_.end() ? &*found : nullptr;
}

Place Memory::place_of(const void *address) {
  const auto at = reinterpret_cast<uint64_t>(address);
  const Block *const block = block_of(at);
  return block != nullptr ? Place{block->buffer, at - block->address} : Place{nullptr, 0};
}

}  // namespace gsc::vulkan
