// SPDX-License-Identifier: Apache-2.0
// Arguments of kernels are in the command buffer (vkCmdUpdateBuffer), so that it can be submitted again at any time, and
// are copied to the same few KiB of the context's in each call: the work of a context runs in one order.
#include "core/vulkan/commands.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace gsc::vulkan {
namespace {

constexpr uint32_t kMaxGroups = 65535;  ///< that every device has at least
constexpr VkDeviceSize kMaxUpdate = 65536;

/// A shader without the execution modes that the device does not have.
void copy_module(const Shader &shader, const FloatControls &controls, Vec<uint32_t> &out) {
  constexpr uint32_t kOpExecutionMode = 16, kOpCapability = 17;
  constexpr uint32_t kHeader = 5;
  const struct {
    uint32_t mode, capability;
    bool fp32, fp64;
  } all[] = {{4459, 4464, controls.denormals32, controls.denormals64}};
  out.assign(shader.words, shader.words + kHeader);
  for (int32_t at = kHeader; at < shader.count;) {
    const uint32_t *words = shader.words + at;
    const auto length = static_cast<int32_t>(words[0] >> 16);
    const uint32_t code = words[0] & 0xffffU;
    bool keep = true;
    for (const auto &control : all) {
      if (code == kOpCapability && words[1] == control.capability) keep = control.fp32 || control.fp64;
      if (code == kOpExecutionMode && words[2] == control.mode) keep = words[3] == 64 ? control.fp64 : control.fp32;
    }
    if (keep) out.insert(out.end(), words, words + length);
    at += length;
  }
}

}  // namespace

Pipelines::Pipelines(std::pmr::memory_resource *host, Device &device) : host_(host), device_(device), made_(host) {
  VkPushConstantRange range{};
  range.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
  range.size = sizeof(uint64_t);
  VkPipelineLayoutCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  info.pushConstantRangeCount = 1;
  info.pPushConstantRanges = &range;
  GSC_VK_CALL("opening the Vulkan device", device.functions(), CreatePipelineLayout, device.get(), &info, nullptr,
              &layout_);
}

Pipelines::~Pipelines() {
  const Functions &f = device_.functions();
  for (const Entry &entry : made_) f.DestroyPipeline(device_.get(), entry.pipeline, nullptr);
  f.DestroyPipelineLayout(device_.get(), layout_, nullptr);
}

VkPipeline Pipelines::get(Kernel kernel, int32_t special, int32_t threads) {
  for (const Entry &entry : made_) {
    if (entry.kernel == kernel && entry.special == special && entry.threads == threads) return entry.pipeline;
  }
  made_.push_back({kernel, special, threads, nullptr});
  try {
    made_.back().pipeline = compile(kernel, special, threads);
  } catch (...) {
    made_.pop_back();
    throw;
  }
  return made_.back().pipeline;
}

VkPipeline Pipelines::compile(Kernel kernel, int32_t special, int32_t threads) {
  const Functions &f = device_.functions();
  const Shader &shader = kShaders[static_cast<int32_t>(kernel)];
  char what[64];
  std::snprintf(what, sizeof what, "compiling the kernel \"%s\"", shader.name);
  Vec<uint32_t> words(host_);
  copy_module(shader, device_.float_controls(), words);
  VkShaderModuleCreateInfo module{};
  module.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  module.codeSize = words.size() * sizeof(uint32_t);
  module.pCode = words.data();
  const int32_t constants[] = {threads, special};
  const VkSpecializationMapEntry entries[] = {{0, 0, sizeof(int32_t)}, {1, sizeof(int32_t), sizeof(int32_t)}};
  const VkSpecializationInfo specialization = {2, entries, sizeof constants, constants};
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &specialization;
  info.layout = layout_;
  GSC_VK_CALL(what, f, CreateShaderModule, device_.get(), &module, nullptr, &info.stage.module);
  VkPipeline pipeline = nullptr;
  const VkResult result = f.CreateComputePipelines(device_.get(), nullptr, 1, &info, nullptr, &pipeline);
  f.DestroyShaderModule(device_.get(), info.stage.module, nullptr);
  vulkan::check(result, what, "vkCreateComputePipelines");
  return pipeline;
}

Recorder::Recorder(std::pmr::memory_resource *host, Device &of) : device(of), memory(host, of), pipelines(host, of) {
  const Functions &f = device.functions();
  const char *what = "opening the Vulkan device";
  try {
    VkCommandPoolCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
    info.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
    info.queueFamilyIndex = device.queue_family();
    GSC_VK_CALL(what, f, CreateCommandPool, device.get(), &info, nullptr, &pool);
    for (Slot &slot : slots) {
      VkCommandBufferAllocateInfo buffer{};
      buffer.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
      buffer.commandPool = pool;
      buffer.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
      buffer.commandBufferCount = 1;
      GSC_VK_CALL(what, f, AllocateCommandBuffers, device.get(), &buffer, &slot.commands);
      VkFenceCreateInfo fence{};
      fence.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
      GSC_VK_CALL(what, f, CreateFence, device.get(), &fence, nullptr, &slot.fence);
    }
    staging = memory.make_mapped(kStagingBytes);
    arguments = memory.take(kArgumentBytes);
  } catch (...) {
    close();
    throw;
  }
}

void Recorder::close() noexcept {
  const Functions &f = device.functions();
  for (Slot &slot : slots) {
    if (slot.pending) (void)f.WaitForFences(device.get(), 1, &slot.fence, VK_TRUE, UINT64_MAX);
    f.DestroyFence(device.get(), slot.fence, nullptr);
  }
  f.DestroyCommandPool(device.get(), pool, nullptr);
  memory.free_block(staging);
}

void Recorder::wait_for(Slot &slot, const char *what) {
  if (!slot.pending) return;
  const Functions &f = device.functions();
  const VkResult result = f.WaitForFences(device.get(), 1, &slot.fence, VK_TRUE, UINT64_MAX);
  if (result == VK_ERROR_DEVICE_LOST) slot.pending = false;  // it will not end
  vulkan::check(result, what, "vkWaitForFences");
  GSC_VK_CALL(what, f, ResetFences, device.get(), 1, &slot.fence);
  slot.pending = false;
}

void Recorder::wait(const char *what) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (Slot &slot : slots) wait_for(slot, what);
}

/// Command buffers of the caller's use nothing that is released: objects are destroyed after them, and what all calls
/// share is kept. So only the library's own must have ended. If one cannot be waited for, all is kept until the next time.
bool Recorder::release(Memory::Which which) noexcept {
  for (Slot &slot : slots) {
    try {
      wait_for(slot, "releasing memory");
    } catch (...) {
      if (slot.pending) return false;
    }
  }
  return memory.release(which);
}

uint64_t Recorder::take(int64_t bytes) {
  try {
    return memory.take(bytes);
  } catch (const std::bad_alloc &) {
    if (!release(Memory::Which::kAll)) throw;
  } catch (const Error &error) {
    if (error.details().status != GSC_ERROR_OUT_OF_MEMORY || !release(Memory::Which::kAll)) throw;
  }
  return memory.take(bytes);
}

void Recorder::give_back(uint64_t address, int64_t bytes) noexcept {
  const std::lock_guard<std::mutex> lock(mutex);
  if (memory.give_back(address, bytes)) release(Memory::Which::kNotNeeded);
}

Recording::Recording(Recorder &recorder, gsc_stream stream, const char *what)
    : recorder_(recorder), lock_(recorder.mutex), what_(what), commands_(static_cast<VkCommandBuffer>(stream)) {
  if (commands_ == nullptr) slot_ = &recorder.slots[recorder.next];
}

void Recording::begin() {
  if (commands_ != nullptr) return;
  recorder_.wait_for(*slot_, what_);
  VkCommandBufferBeginInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  GSC_VK_CALL(what_, functions(), BeginCommandBuffer, slot_->commands, &info);
  commands_ = slot_->commands;
  recorder_.next = (recorder_.next + 1) % static_cast<int32_t>(std::size(recorder_.slots));
}

uint64_t Recording::send(const void *data, int64_t bytes) {
  const int64_t at = (sent_bytes_ + 7) & ~int64_t{7};
  if (at + bytes > int64_t{sizeof sent_}) fail(GSC_ERROR_INTERNAL, kNoArgument, "%s has too many arguments", what_);
  std::memcpy(sent_ + at, data, static_cast<std::size_t>(bytes));
  sent_bytes_ = at + bytes;
  return recorder_.arguments + static_cast<uint64_t>(at);
}

void Recording::add(Kernel kernel, int64_t work, int32_t threads, int32_t special, const void *arguments,
                    int64_t bytes) {
  if (count_ == static_cast<int>(std::size(dispatches_))) {
    fail(GSC_ERROR_INTERNAL, kNoArgument, "%s has too many kernels", what_);
  }
  const VkPipeline pipeline = recorder_.pipelines.get(kernel, special, threads);
  const auto groups = static_cast<uint32_t>(std::clamp<int64_t>(work, 1, kMaxGroups));
  dispatches_[count_++] = {pipeline, send(arguments, bytes), groups};
}

uint64_t Recording::scratch(int64_t bytes) {
  if (bytes > recorder_.scratch_bytes) {
    const int64_t larger = std::max({bytes, 2 * recorder_.scratch_bytes, int64_t{65536}});
    recorder_.scratch = recorder_.take(larger);
    recorder_.scratch_bytes = larger;
  }
  return recorder_.scratch;
}

void Recording::memory_barrier(VkPipelineStageFlags to, VkAccessFlags access) {
  VkMemoryBarrier barrier{};
  barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  barrier.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  barrier.dstAccessMask = access;
  functions().CmdPipelineBarrier(commands_, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT, to,
                                 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

void Recording::barrier() {
  begin();
  memory_barrier(VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                 VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT);
}

void Recording::barrier_to_host() { memory_barrier(VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT); }

void Recording::update(uint64_t address, const void *data, int64_t bytes) {
  const Place place = recorder_.memory.place_of(reinterpret_cast<const void *>(address));
  const auto *from = static_cast<const unsigned char *>(data);
  for (VkDeviceSize done = 0, all = static_cast<VkDeviceSize>(bytes); done < all;) {
    const VkDeviceSize part = std::min(all - done, kMaxUpdate);
    functions().CmdUpdateBuffer(commands_, place.buffer, place.offset + done, part, from + done);
    done += part;
  }
}

void Recording::fill_zero(uint64_t address, int64_t bytes) {
  const Place place = recorder_.memory.place_of(reinterpret_cast<const void *>(address));
  functions().CmdFillBuffer(commands_, place.buffer, place.offset, static_cast<VkDeviceSize>((bytes + 3) & ~int64_t{3}),
                            0);
}

void Recording::run() {
  const Functions &f = functions();
  barrier();
  update(recorder_.arguments, sent_, (sent_bytes_ + 3) & ~int64_t{3});
  for (int i = 0; i < count_; ++i) {
    barrier();
    const Dispatch &d = dispatches_[i];
    f.CmdBindPipeline(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, d.pipeline);
    f.CmdPushConstants(commands_, recorder_.pipelines.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof d.arguments,
                       &d.arguments);
    f.CmdDispatch(commands_, d.groups, 1, 1);
  }
  count_ = 0;
  sent_bytes_ = 0;
}

void Recording::finish(bool wait) {
  if (slot_ == nullptr) return;
  GSC_VK_CALL(what_, functions(), EndCommandBuffer, commands_);
  VkSubmitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  info.commandBufferCount = 1;
  info.pCommandBuffers = &commands_;
  vulkan::check(recorder_.device.submit(info, slot_->fence), what_, "vkQueueSubmit");
  slot_->pending = true;
  if (wait) recorder_.wait_for(*slot_, what_);
}

}  // namespace gsc::vulkan
