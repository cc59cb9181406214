/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRADSCALER_VULKAN_H
#define GRADSCALER_VULKAN_H
/*
 * EXPERIMENTAL. Everything in this header may change or go in any release, without a new ABI number. Its names begin
 * with gscx_ and GSCX_; docs/reference/abi.md has what is promised of the names that begin with gsc_.
 *
 * gradscaler on Vulkan: a GPU of any maker gives the CPU backend's results, bit by bit except for the payloads of NaN.
 * The library works in your VkDevice and records into your command buffers. A program hands over its handles, and from
 * then on makes the calls of gradscaler.h, without error checks:
 *
 *     gscx_vulkan_device handles = {0};
 *     handles.struct_size = sizeof handles;
 *     handles.instance = instance;
 *     handles.physical_device = physical_device;
 *     handles.device = device;
 *     handles.queue = queue;
 *     handles.queue_family = family;                // has compute
 *     handles.get_instance_proc_addr = (void *)vkGetInstanceProcAddr;
 *     handles.enabled_features = &features;         // the chain that vkCreateDevice got
 *     gsc_context *ctx;
 *     gscx_context_create_vulkan(NULL, &handles, &ctx);
 *
 *     gsc_tensor p = GSC_TENSOR_INIT((void *)weights, n, GSC_FP32);    // VkDeviceAddress of your buffers
 *     gsc_tensor g = GSC_TENSOR_INIT((void *)gradients, n, GSC_FP16);
 *     // lists, an optimizer and a scaler, as in gradscaler.h
 *
 *     vkBeginCommandBuffer(commands, &begin_info);
 *     // your dispatches, which write the gradients
 *     gsc_scaler_step_and_update(scaler, adamw, commands);
 *     vkEndCommandBuffer(commands);                 // submit it for every batch
 *
 * Without a device of yours, GSCX_DEVICE_VULKAN as device_type of gsc_context_create opens device_index by the system's
 * loader. All streams are then NULL. gsc_device_get_count and gsc_device_get_info take that type, too.
 *
 * What differs from gradscaler.h:
 *   - Memory. "Device memory" is a VkDeviceAddress, cast to a pointer, in a buffer with
 *     VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT. That goes for tensors, device scalars, what
 *     gsc_scaler_get_device_state returns, and `out_report` of gsc_scaler_read_report_async: an address, such as that
 *     of mapped memory, to which the 120 bytes are written that a report has in 0.1; no struct_size is read there.
 *     Vulkan has no call that tells whose memory an address is: host addresses, and addresses beyond a buffer, are
 *     accepted.
 *   - Streams. A stream is a VkCommandBuffer in the recording state, primary or secondary, outside of a render pass, of
 *     a family with compute. Calls record their work: they never submit, wait or allocate. Kernels are compiled at
 *     their first use, so record a step while you load, and drop it. With NULL the library records a command buffer of
 *     its own and submits it to `queue`. Functions whose name ends in _sync take NULL alone, and see what was submitted
 *     to that queue before.
 *   - Recorded once, submitted often. Skipping, counters and the scale live on the device, and so does the learning
 *     rate after gsc_optimizer_set_device_lr. Clip limits are those of the recording. Record again after
 *     gsc_optimizer_add_group, a list's first gsc_tensor_list_set_present and an optimizer's first
 *     gsc_optimizer_set_tensor_steps: a step that was recorded before has the groups of its time, and counts for every
 *     tensor.
 *   - Order. The work of one context must run in one order: two of its command buffers must not run at the same time.
 *     Contexts are independent. With several queues, order the submissions of a context by semaphores, and transfer the
 *     ownership of your buffers. With several frames in flight, record each with its own gradients
 *     (gsc_tensor_list_set_pointers, then the step, into the same command buffer), in the order in which they will run.
 *   - Barriers. Every call begins with one from compute shaders and transfers to both, so gradients that were written
 *     by these earlier on the queue need none of yours. Record one for other readers and writers. The library's side is
 *     VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT with VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT.
 *   - Destruction. Destroy an object when no command buffer that uses it is running or will run again. The library
 *     waits only for what it submitted itself. Your buffers may be freed at once.
 *   - Contexts. All lists of a scaler are in the scaler's context; others are refused with UNSUPPORTED.
 *   - fp16 gradients. A shader's conversion may round toward zero, which turns an overflow into 65504. The scaler
 *     cannot see that: write inf for magnitudes of 65520 and more.
 *   - Devices. gsc_device_info.units is 0, which Vulkan does not tell, and `level` is 10 * major + minor of the
 *     device's Vulkan version. gsc_device_get_count is 0 with GSC_OK without a loader, without a driver, or if the
 *     library was built without Vulkan.
 *   - Bytes. Objects share buffers of 4 MiB; larger parts have a buffer each. gsc_context_get_memory counts whole
 *     buffers. A buffer that no object needs is released with its last object; one of 4 MiB is kept for the next,
 *     unless an allocation would fail.
 *   - Errors. A command buffer given to a function that waits: BAD_STATE. A lost device: DEVICE from every call, but
 *     objects can still be destroyed. A failure of `allocate` has the argument "device" in gsc_error.
 *
 * What the device needs, version 1.2 at least:
 *   - enabled: shaderFloat64, shaderInt64, bufferDeviceAddress, storageBuffer16BitAccess, storageBuffer8BitAccess;
 *   - rounding to nearest, shaderRoundingModeRTEFloat32 and ...Float64; inf and NaN in arithmetic,
 *     shaderSignedZeroInfNanPreserveFloat32 and ...Float64;
 *   - workgroups of 256 invocations with 16 KiB of shared memory.
 *
 * Loading at run time: gscx functions are not in the table gsc_api. Ask the system for them, and expect that a library
 * lacks one:
 *
 *     gsc_status (*create)(const gsc_context_options *, const gscx_vulkan_device *, gsc_context **);
 *     *(void **)&create = dlsym(library.handle, "gscx_context_create_vulkan");   // of loader.h; GetProcAddress
 *     if (create == NULL) ...
 */
#include <gradscaler/gradscaler.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Kinds of device that are experimental. @extends{DeviceType GSCX_DEVICE_} */
enum {
  /** A GPU of any maker, through Vulkan. Experimental: what concerns it may change in any release. */
  GSCX_DEVICE_VULKAN = 2
};

/** Locks or unlocks something of yours. Exceptions are dropped. */
typedef void (*gscx_lock_fn)(void *user);

/** A buffer of yours that a context uses. */
typedef struct gscx_vulkan_buffer {
  /** VkBuffer, bound to memory. */
  void *buffer;
  /** VkDeviceAddress of its first byte. */
  uint64_t address;
  /** Its first byte as the host sees it, in coherent memory; NULL if it was not asked for. */
  void *mapped;
  /** Yours, such as a VmaAllocation. */
  void *allocation;
} gscx_vulkan_buffer;

/**
 * Creates a buffer by `create_info`, a const VkBufferCreateInfo *, in memory allocated with
 * VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT: device-local, or coherent and mapped if `mapped` is not 0. vmaCreateBuffer
 * makes such a buffer. Fills all of *out_buffer, whose address is aligned to 16 bytes or more, and returns VK_SUCCESS.
 * Another VkResult makes the call fail. So do exceptions: std::bad_alloc with OUT_OF_MEMORY, others with
 * GSC_ERROR_CALLBACK. *out_buffer is then not read. If memory is out, the library releases what it holds and no object
 * needs, and calls again. Runs on any thread that calls the library, and must not use the context.
 */
typedef int32_t (*gscx_vulkan_allocate_fn)(void *user, const void *create_info, int32_t mapped,
                                           gscx_vulkan_buffer *out_buffer);
/**
 * Destroys a buffer of gscx_vulkan_allocate_fn and frees its memory. What the library submitted no longer uses it. Runs
 * on any thread that calls the library or destroys an object, and must not use the context. Exceptions are dropped.
 */
typedef void (*gscx_vulkan_release_fn)(void *user, const gscx_vulkan_buffer *buffer);

/**
 * Your Vulkan device: handles of Vulkan's own header, which this one does not include. All must outlive the context and
 * its objects.
 */
typedef struct gscx_vulkan_device {
  uint32_t struct_size;
  /** Of `queue`; it has compute. */
  uint32_t queue_family;
  /** VkInstance, of version 1.2 at least. */
  void *instance;
  /** VkPhysicalDevice. */
  void *physical_device;
  /** VkDevice. */
  void *device;
  /** VkQueue, for calls without a command buffer of yours. */
  void *queue;
  /** PFN_vkGetInstanceProcAddr. The library calls no other loader. */
  void *get_instance_proc_addr;
  /**
   * The VkPhysicalDeviceFeatures2 chain that the device was created with, read before the call returns; NULL: all
   * features that it supports.
   */
  const void *enabled_features;
  /** Called around vkQueueSubmit. NULL, both: no one else uses `queue` during calls that submit. */
  gscx_lock_fn lock;
  gscx_lock_fn unlock;
  void *lock_user;
  /** Device memory for everything that the context keeps there. NULL, both: vkAllocateMemory, in blocks of 4 MiB. */
  gscx_vulkan_allocate_fn allocate;
  gscx_vulkan_release_fn release;
  void *allocator_user;
} gscx_vulkan_device;

/**
 * Opens your Vulkan device. Use it in place of gsc_context_create. `device` is copied. `options` NULL: the defaults.
 * Their device_type is GSCX_DEVICE_VULKAN, or left at its default; device_index is only what gsc_context_get_device
 * returns. Free *out_context with gsc_context_destroy.
 * Errors: INVALID_ARGUMENT for a handle that is NULL, or options of another kind of device; UNAVAILABLE if the device
 * lacks something, which the message names, or if the library was built without Vulkan; OUT_OF_MEMORY, CALLBACK,
 * DEVICE.
 * @nullable{options}
 */
GSC_API gsc_status gscx_context_create_vulkan(const gsc_context_options *options, const gscx_vulkan_device *device,
                                              gsc_context **out_context);

#ifdef __cplusplus
}
#endif
#endif /* GRADSCALER_VULKAN_H */
