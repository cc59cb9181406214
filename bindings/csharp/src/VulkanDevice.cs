// SPDX-License-Identifier: Apache-2.0
using System;
using System.Runtime.InteropServices;

namespace Gradscaler
{
  /// <summary>
  /// Handles of your Vulkan device for Context.Vulkan; those of Silk.NET are `Handle`. All must outlive the context and
  /// its objects. gradscaler/vulkan.h has the features that the device must be created with. Experimental: this may
  /// change in any release.
  /// </summary>
  [StructLayout(LayoutKind.Sequential)]
  public struct VulkanDevice
  {
    internal uint StructSize;

    /// <summary>Of the queue; it has compute.</summary>
    public uint QueueFamily;

    /// <summary>VkInstance, of version 1.2 at least.</summary>
    public IntPtr Instance;

    /// <summary>VkPhysicalDevice.</summary>
    public IntPtr PhysicalDevice;

    /// <summary>VkDevice.</summary>
    public IntPtr Device;

    /// <summary>VkQueue, for calls without a command buffer of yours.</summary>
    public IntPtr Queue;

    /// <summary>The address of vkGetInstanceProcAddr.</summary>
    public IntPtr GetInstanceProcAddr;

    /// <summary>The VkPhysicalDeviceFeatures2 chain of vkCreateDevice; zero: all that the device supports.</summary>
    public IntPtr EnabledFeatures;

    /// <summary>A C function called with LockUser before vkQueueSubmit; zero: nothing else uses the queue then.</summary>
    public IntPtr Lock;

    /// <summary>A C function called with LockUser after vkQueueSubmit.</summary>
    public IntPtr Unlock;

    /// <summary>Given to Lock and Unlock.</summary>
    public IntPtr LockUser;

    /// <summary>A gscx_vulkan_allocate_fn, which makes the buffers of the context; zero: the library does.</summary>
    public IntPtr Allocate;

    /// <summary>The gscx_vulkan_release_fn that belongs to it.</summary>
    public IntPtr Release;

    /// <summary>Given to Allocate and Release.</summary>
    public IntPtr AllocatorUser;
  }
}
