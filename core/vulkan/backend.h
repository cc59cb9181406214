// SPDX-License-Identifier: Apache-2.0
// The Vulkan backend: every pass is a few dispatches, recorded into the caller's command buffer or, without one, submitted
// to the queue that the caller lends. Lists keep a mirror of their plan in device memory; stateless operations send theirs
// along, into scratch memory of the context.
#pragma once

#include "core/device/backend.h"
#include "core/vulkan/commands.h"

namespace gsc::vulkan {

/// A list's plan on the device, in one allocation.
struct Mirror {
  PlanView view;
  DeviceTensor *tensors;
  ChunkResult *results;
  Tickets *tickets;
  bool has_fp64;  ///< tensors that are computed in fp64 when they are parameters
  bool has_others;
};

class VulkanBackend final : public Backend {
 public:
  VulkanBackend(std::pmr::memory_resource *memory, const gsc_context_options &options, const gscx_vulkan_device *given);
  const char *device_name() const { return device_.name(); }

  void *allocate(int64_t bytes) override;
  void release(void *memory, int64_t bytes) noexcept override;
  int64_t device_bytes() const override { return recorder_.memory.held(); }
  void write(void *device, const void *host, int64_t bytes, gsc_stream stream) override;
  void write_sync(void *device, const void *host, int64_t bytes, gsc_stream stream) override;
  void read_sync(void *host, const void *device, int64_t bytes, gsc_stream stream) override;
  void finish_setup() override { recorder_.wait("setting up"); }
  void validate_memory(const gsc_tensor * /*tensors*/, int64_t /*count*/, const Argument & /*what*/) override {}
  bool host_visible() const override { return false; }
  bool report_is_address() const override { return true; }
  int32_t wanted_tasks() const override { return 1; }

  /// The caller orders command buffers, so all work is on one stream.
  StreamId identify(gsc_stream stream) override { return {1, 0, true, stream != nullptr}; }
  void copy_from(void *to, const Backend &source, const void *from, int64_t bytes, gsc_stream stream) override;

  void bind(Plan &plan) override;
  void rebind(const Plan &plan, void *const *data, gsc_stream stream) override;
  void unbind(Plan &plan) noexcept override;

  void check(const CheckJob &job, gsc_stream stream) override;
  void apply(const ApplyJob &job, gsc_stream stream) override;
  void elementwise(const ElementwiseJob &job, gsc_stream stream) override;
  void norm(const NormJob &job, gsc_stream stream) override;
  void record(const RecordJob &job, gsc_stream stream) override;
  void convert(const StateConversion &job, gsc_stream stream) override;
  void diagnose_sync(const DiagnoseJob &job, gsc_stream stream) override;

 private:
  /// Waits for the device, which a command buffer of the caller's cannot.
  void require_no_commands(gsc_stream stream, const char *what) const;

  std::pmr::memory_resource *memory_;
  Device device_;
  Recorder recorder_;
};

}  // namespace gsc::vulkan
