// SPDX-License-Identifier: Apache-2.0
using System;
using System.Threading;

namespace Gradscaler
{
  /// <summary>
  /// A device that has been opened: the CPU, a CUDA or a Vulkan device. Safe to share between threads. May be disposed
  /// before the objects made with it; they keep the device open.
  /// </summary>
  public sealed class Context : IDisposable
  {
    private NativeContext handle;

    private Context(NativeContextOptions options, IntPtr vulkan = default)
    {
      handle = new NativeContext(options, vulkan);
      Callbacks = new CallbackSlot();
      handle.Kept = Callbacks;
      handle.Uses.Count(NativeMemory.OfContext(Type == DeviceType.Cpu ? NumThreads : 1));
    }

    /// <summary>To be kept by every object of the device: its calls write to the log, after Dispose too.</summary>
    internal CallbackSlot Callbacks { get; private set; }

    internal NativeContext Handle => Check.Open(handle, "Context");

    internal static NativeContext HandleOf(Context context) => Check.NotNull(context, "context").Handle;

    /// <summary>For spans.</summary>
    internal static NativeContext HostHandleOf(Context context) => HostMemory.Pass(HandleOf(context), context.Type);

    /// <summary>
    /// The CPU. threads: how many a call may use, the calling one included; 0: all. target: the required instruction
    /// set.
    /// </summary>
    public static Context Cpu(int threads = 0, CpuTarget target = CpuTarget.Best)
    {
      using (var options = new NativeContextOptions())
      {
        options.NumThreads = threads;
        options.CpuTarget = (int)target;
        return new Context(options);
      }
    }

    /// <summary>
    /// A CUDA device. useCurrentContext: work in the CUDA context that is current on this thread, not in the device's
    /// primary one, for libraries that create contexts (ILGPU, ManagedCUDA): their memory and streams are invalid in
    /// the primary one. That context must outlive this one and its objects. Throws UnavailableException if
    /// there is no such device, InvalidArgumentException if no CUDA context is current, or one of another device.
    /// </summary>
    public static Context Cuda(int index = 0, bool useCurrentContext = false)
    {
      using (var options = new NativeContextOptions())
      {
        options.DeviceType = (int)DeviceType.Cuda;
        options.DeviceIndex = index;
        options.Flags = useCurrentContext ? (uint)NativeCalls.CONTEXT_USE_CURRENT : 0;
        return new Context(options);
      }
    }

    /// <summary>
    /// Your Vulkan device; null: the library opens that of the index. Tensors are Tensor.At of a VkDeviceAddress. A
    /// stream is a VkCommandBuffer in the recording state, and zero for calls that block. Throws UnavailableException
    /// if the device lacks a feature, which it names, or if the library has no Vulkan. Experimental: what concerns
    /// Vulkan may change in any release.
    /// </summary>
    public static unsafe Context Vulkan(VulkanDevice? device, int index = 0)
    {
      VulkanDevice handles = device.GetValueOrDefault();
      handles.StructSize = (uint)sizeof(VulkanDevice);
      using (var options = new NativeContextOptions())
      {
        options.DeviceType = (int)DeviceType.Vulkan;
        options.DeviceIndex = index;
        return new Context(options, device.HasValue ? (IntPtr)(&handles) : IntPtr.Zero);
      }
    }

    /// <summary>Number of devices of a type: 1 for the CPU, 0 for others without a driver.</summary>
    public static int DeviceCount(DeviceType type) => NativeCalls.DeviceCount((int)type);

    /// <summary>The properties of a device. Throws UnavailableException if there is no such device.</summary>
    public static DeviceInfo GetDeviceInfo(DeviceType type, int index)
    {
      using (var info = new NativeDeviceInfo())
      {
        NativeCalls.DeviceInfo((int)type, index, info);
        return new DeviceInfo(info);
      }
    }

    /// <summary>The library's version, such as "0.1.0".</summary>
    public static string Version => NativeCalls.version();

    /// <summary>One line for bug reports: version, compiler, instruction sets.</summary>
    public static string BuildInfo => NativeCalls.build_info();

    /// <summary>Kind of device.</summary>
    public DeviceType Type => (DeviceType)Handle.DeviceType();

    /// <summary>Number of the device; 0 for the CPU.</summary>
    public int Index => Handle.DeviceIndex();

    /// <summary>The instruction set in use on the CPU; never Best.</summary>
    public CpuTarget CpuTarget => (CpuTarget)Handle.CpuTarget();

    /// <summary>Threads that a call may use on the CPU.</summary>
    public int NumThreads => Handle.NumThreads();

    /// <summary>Host memory that the library holds for this context and its objects; on the CPU all of it.</summary>
    public long HostBytes => Handle.HostBytes();

    /// <summary>Memory of a GPU that it holds for them, without scratch.</summary>
    public long DeviceBytes => Handle.DeviceBytes();

    /// <summary>
    /// Sets the receiver of the library's messages; with null the library is silent. receiver is called on the thread
    /// whose call caused the message; it must not use that call's objects, and what it throws is dropped. Not while
    /// another thread uses the context.
    /// </summary>
    public void SetLog(Action<LogLevel, string> receiver)
    {
      NativeContext context = Handle;
      CallbackSlot.LogFunction function = receiver == null ? null : CallbackSlot.LogFunctionPointer;
      context.Uses.Run(context, reference => NativeCallsPINVOKE.SetLog(reference, function, Callbacks.Number));
      Callbacks.Log = receiver;
    }

    /// <summary>Closes it after the calls in progress on other threads. Does nothing the second time.</summary>
    public void Dispose() => Interlocked.Exchange(ref handle, null)?.Dispose();
  }
}
