// SPDX-License-Identifier: Apache-2.0
using System;
using System.Runtime.InteropServices;

namespace Gradscaler
{
  /// <summary>
  /// Stateless operations, for loops that keep the scaler's state themselves. Device scalars are single numbers in
  /// memory of the device. `stream` is the CUDA stream to enqueue on; it is ignored on the CPU.
  /// </summary>
  public static class Ops
  {
    /// <summary>
    /// tensors[i] *= invScale in place; foundInf becomes 1 if any element is inf or NaN before or after.
    /// </summary>
    public static void UnscaleCheck(Context context, Tensor[] tensors, DeviceScalar foundInf, DeviceScalar invScale,
                                    IntPtr stream = default(IntPtr))
    {
      NativeContext device = Context.HandleOf(context);
      using (NativeTensorArray array = Tensor.Array(tensors, "tensors"))
      {
        device.UnscaleCheck(array, DeviceScalar.Floats(foundInf, "foundInf"), DeviceScalar.Floats(invScale, "invScale"), stream);
      }
      GC.KeepAlive(foundInf);
      GC.KeepAlive(invScale);
    }

    /// <summary>values *= invScale for host memory; returns whether any is inf or NaN before or after.</summary>
    public static unsafe bool UnscaleCheck(Context context, Span<float> values, float invScale)
    {
      NativeContext device = Context.HandleOf(context);
      float found = 0;
      IntPtr foundAddress = (IntPtr)(&found), scaleAddress = (IntPtr)(&invScale);
      HostMemory.Run(values, DType.Fp32, array => device.UnscaleCheck(array, foundAddress, scaleAddress, IntPtr.Zero));
      return found != 0;
    }

    /// <summary>PyTorch's _amp_update_scale_; growthTracker is a 32-bit integer, the others are floats.</summary>
    public static void UpdateScale(Context context, DeviceScalar scale, DeviceScalar growthTracker, DeviceScalar foundInf, double growthFactor,
                                   double backoffFactor, int growthInterval, IntPtr stream = default(IntPtr))
    {
      Context.HandleOf(context).UpdateScale(DeviceScalar.Floats(scale, "scale"), DeviceScalar.Ints(growthTracker, "growthTracker"),
                                            DeviceScalar.Floats(foundInf, "foundInf"), growthFactor, backoffFactor,
                                            growthInterval, stream);
      GC.KeepAlive(scale);
      GC.KeepAlive(growthTracker);
      GC.KeepAlive(foundInf);
    }

    /// <summary>dst[i] = src[i] * factor, a float; dtypes may differ, and src and dst may be the same memory.</summary>
    public static void Scale(Context context, Tensor[] src, Tensor[] dst, DeviceScalar factor, IntPtr stream = default(IntPtr))
    {
      NativeContext device = Context.HandleOf(context);
      using (NativeTensorArray from = Tensor.Array(src, "src"))
      using (NativeTensorArray to = Tensor.Array(dst, "dst"))
      {
        device.Scale(from, to, DeviceScalar.Floats(factor, "factor"), stream);
      }
      GC.KeepAlive(factor);
    }

    /// <summary>y[i] = a * x[i] + b * y[i] in fp32, or fp64 if either is: gradient accumulation.</summary>
    public static void Axpby(Context context, double a, Tensor[] x, double b, Tensor[] y,
                             IntPtr stream = default(IntPtr))
    {
      NativeContext device = Context.HandleOf(context);
      using (NativeTensorArray from = Tensor.Array(x, "x"))
      using (NativeTensorArray to = Tensor.Array(y, "y"))
      {
        device.Axpby(a, from, b, to, stream);
      }
    }

    /// <summary>dst[i] = src[i], converted to dst's dtype, rounded to nearest even.</summary>
    public static void Cast(Context context, Tensor[] src, Tensor[] dst, IntPtr stream = default(IntPtr))
    {
      NativeContext device = Context.HandleOf(context);
      using (NativeTensorArray from = Tensor.Array(src, "src"))
      using (NativeTensorArray to = Tensor.Array(dst, "dst"))
      {
        device.Cast(from, to, stream);
      }
    }

    /// <summary>dst = src, converted to dst's dtype, rounded to nearest even.</summary>
    public static void Cast(Context context, Tensor src, Tensor dst, IntPtr stream = default(IntPtr))
    {
      Cast(context, new[] { src }, new[] { dst }, stream);
    }

    /// <summary>dst = src as Fp16 or Bf16, for host memory.</summary>
    public static void Cast(Context context, ReadOnlySpan<float> src, Span<ushort> dst, DType dtype)
    {
      NativeContext device = Context.HandleOf(context);
      HostMemory.Run(src, DType.Fp32, dst, dtype, (from, to) => device.Cast(from, to, IntPtr.Zero));
    }

    /// <summary>dst = src, which is Fp16 or Bf16, for host memory.</summary>
    public static void Cast(Context context, ReadOnlySpan<ushort> src, DType dtype, Span<float> dst)
    {
      NativeContext device = Context.HandleOf(context);
      HostMemory.Run(src, dtype, dst, DType.Fp32, (from, to) => device.Cast(from, to, IntPtr.Zero));
    }

#if NET5_0_OR_GREATER
    /// <summary>dst = src, for host memory.</summary>
    public static void Cast(Context context, ReadOnlySpan<float> src, Span<Half> dst)
    {
      NativeContext device = Context.HandleOf(context);
      HostMemory.Run(src, DType.Fp32, dst, DType.Fp16, (from, to) => device.Cast(from, to, IntPtr.Zero));
    }

    /// <summary>dst = src, for host memory.</summary>
    public static void Cast(Context context, ReadOnlySpan<Half> src, Span<float> dst)
    {
      NativeContext device = Context.HandleOf(context);
      HostMemory.Run(src, DType.Fp16, dst, DType.Fp32, (from, to) => device.Cast(from, to, IntPtr.Zero));
    }
#endif

    /// <summary>
    /// Converts optimizer state between its formats, rounded to nearest: dst[i] = src[i]. Both are Fp32 or codes of one
    /// kind of slot, with their scales (Tensor.WithScales), or both are remainders. If one has fp32 masters and the other
    /// remainders, weights has the 16-bit weights; else it may be null. src and dst must not overlap.
    /// </summary>
    public static void ConvertState(Context context, Tensor[] src, Tensor[] weights, Tensor[] dst,
                                    IntPtr stream = default(IntPtr))
    {
      NativeContext device = Context.HandleOf(context);
      using (NativeTensorArray from = Tensor.Array(src, "src"))
      using (NativeTensorArray halves = weights == null ? null : Tensor.Array(weights, "weights"))
      using (NativeTensorArray to = Tensor.Array(dst, "dst"))
      {
        device.ConvertState(from, halves, to, stream);
      }
    }

    /// <summary>The norm over all tensors, a double, and of each tensor, doubles. NaN and inf propagate.</summary>
    public static void Norm(Context context, Tensor[] tensors, Norm norm, DeviceScalar total, DeviceScalar each = null,
                            IntPtr stream = default(IntPtr))
    {
      NativeContext device = Context.HandleOf(context);
      using (NativeTensorArray array = Tensor.Array(tensors, "tensors"))
      {
        device.Norm(array, (int)norm, DeviceScalar.Doubles(total, 1, "total"), DeviceScalar.Doubles(each, tensors.Length, "each"),
                    stream);
      }
      GC.KeepAlive(total);
      GC.KeepAlive(each);
    }
  }

  /// <summary>Spans as tensors, pinned for the length of one call on the CPU.</summary>
  internal static class HostMemory
  {
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
        throw new InvalidArgumentException(name + " has elements of " + Tensor.ElementSize<T>() + " bytes, " + dtype
                                           + " has " + Tensor.SizeOf(dtype));
      }
    }
  }
}
