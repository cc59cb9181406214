// SPDX-License-Identifier: Apache-2.0
using System;
using System.Runtime.InteropServices;

namespace Gradscaler
{
  /// <summary>
  /// Stateless operations, for loops that keep the scaler's state themselves. Device scalars are single numbers in
  /// memory of the device. `stream` is the CUDA stream or VkCommandBuffer; it is ignored on the CPU.
  /// </summary>
  public static partial class Ops
  {
    /// <summary>values *= invScale for host memory; returns whether any is inf or NaN before or after.</summary>
    public static unsafe bool UnscaleCheck(Context context, Span<float> values, float invScale)
    {
      NativeContext device = Context.HostHandleOf(context);
      float found = 0;
      IntPtr foundAddress = (IntPtr)(&found), scaleAddress = (IntPtr)(&invScale);
      HostMemory.Run(values, DType.Fp32, array => device.UnscaleCheck(array, foundAddress, scaleAddress, IntPtr.Zero));
      return found != 0;
    }

    /// <summary>dst = src for one tensor, converted to dst's dtype.</summary>
    public static void Cast(Context context, Tensor src, Tensor dst, IntPtr stream = default) =>
        Cast(context, new[] { src }, new[] { dst }, stream);

    /// <summary>dst = src as Fp16 or Bf16, for host memory.</summary>
    public static void Cast(Context context, ReadOnlySpan<float> src, Span<ushort> dst, DType dtype) =>
        CastHost(context, src, DType.Fp32, dst, dtype);

    /// <summary>dst = src, which is Fp16 or Bf16, for host memory.</summary>
    public static void Cast(Context context, ReadOnlySpan<ushort> src, DType dtype, Span<float> dst) =>
        CastHost(context, src, dtype, dst, DType.Fp32);

#if NET5_0_OR_GREATER
    /// <summary>dst = src, for host memory.</summary>
    public static void Cast(Context context, ReadOnlySpan<float> src, Span<Half> dst) =>
        CastHost(context, src, DType.Fp32, dst, DType.Fp16);

    /// <summary>dst = src, for host memory.</summary>
    public static void Cast(Context context, ReadOnlySpan<Half> src, Span<float> dst) =>
        CastHost(context, src, DType.Fp16, dst, DType.Fp32);
#endif

    private static void CastHost<S, D>(Context context, ReadOnlySpan<S> src, DType srcType, Span<D> dst, DType dstType)
        where S : struct
        where D : struct
    {
      NativeContext device = Context.HostHandleOf(context);
      HostMemory.Run(src, srcType, dst, dstType, (from, to) => device.Cast(from, to, IntPtr.Zero));
    }

    /// <summary>The norm over all tensors, a double, and of each tensor, doubles. NaN and inf propagate.</summary>
    public static void Norm(Context context, Tensor[] tensors, Norm norm, DeviceScalar total, DeviceScalar each = null,
                            IntPtr stream = default)
    {
      NativeContext device = Context.HandleOf(context);
      using (NativeTensorArray array = Tensor.Array(tensors, "tensors", context.Type))
      {
        device.Norm(array, (int)norm, DeviceScalar.Doubles(total, 1, "total"),
                    DeviceScalar.Doubles(each, tensors.Length, "each"), stream);
      }
      GC.KeepAlive(total);
      GC.KeepAlive(each);
    }
  }

  /// <summary>Spans as tensors, pinned for the length of one call on the CPU.</summary>
  internal static class HostMemory
  {
    /// <summary>On Vulkan the library cannot tell an address of the host from one of the device.</summary>
    internal static T Pass<T>(T handle, DeviceType device, string what = "a span")
    {
      if (device == DeviceType.Vulkan)
      {
        throw new InvalidArgumentException($"{what} is host memory, but the context is a Vulkan device: use Tensor.At");
      }
      return handle;
    }

    internal static unsafe void Run<T>(Span<T> values, DType dtype, Action<NativeTensorArray> call) where T : struct
    {
      Require<T>(dtype, "values");
      fixed (byte* data = &MemoryMarshal.GetReference(MemoryMarshal.AsBytes(values)))
      using (var array = new NativeTensorArray(1))
      {
        array.Add((IntPtr)data, values.Length, (int)dtype, null);
        call(array);
      }
    }

    internal static unsafe void Run<S, D>(ReadOnlySpan<S> src, DType srcType, Span<D> dst, DType dstType,
                                          Action<NativeTensorArray, NativeTensorArray> call)
        where S : struct
        where D : struct
    {
      Require<S>(srcType, "src");
      Require<D>(dstType, "dst");
      fixed (byte* from = &MemoryMarshal.GetReference(MemoryMarshal.AsBytes(src)))
      fixed (byte* to = &MemoryMarshal.GetReference(MemoryMarshal.AsBytes(dst)))
      using (var source = new NativeTensorArray(1))
      using (var target = new NativeTensorArray(1))
      {
        source.Add((IntPtr)from, src.Length, (int)srcType, null);
        target.Add((IntPtr)to, dst.Length, (int)dstType, null);
        call(source, target);
      }
    }

    private static void Require<T>(DType dtype, string name) where T : struct
    {
      if (Tensor.SizeOf(dtype) != Tensor.ElementSize<T>())
      {
        throw new InvalidArgumentException(
            $"{name} has elements of {Tensor.ElementSize<T>()} bytes, {dtype} has {Tensor.SizeOf(dtype)}");
      }
    }
  }
}
