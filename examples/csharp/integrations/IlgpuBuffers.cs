// SPDX-License-Identifier: Apache-2.0
using System;
using Gradscaler;
using ILGPU;
using ILGPU.Runtime;
using ILGPU.Runtime.Cuda;

namespace Integrations
{
  /// <summary>Memory and streams of ILGPU. Dense buffers only: of others the count is not that of the memory.</summary>
  public static class IlgpuBuffers
  {
    /// <summary>All elements of a buffer, which is kept alive. Do not dispose it, or its accelerator, before.</summary>
    public static Tensor Tensor(MemoryBuffer1D<float, Stride1D.Dense> buffer) => At(buffer, DType.Fp32);

    /// <summary>The same of doubles.</summary>
    public static Tensor Tensor(MemoryBuffer1D<double, Stride1D.Dense> buffer) => At(buffer, DType.Fp64);

    /// <summary>The same of ILGPU's Half.</summary>
    public static Tensor Tensor(MemoryBuffer1D<ILGPU.Half, Stride1D.Dense> buffer) => At(buffer, DType.Fp16);

    /// <summary>For the methods with a stream.</summary>
    public static IntPtr Stream(AcceleratorStream stream) => ((CudaStream)stream).StreamPtr;

    private static Tensor At(MemoryBuffer buffer, DType dtype)
    {
      if (buffer.IsDisposed)
      {
        throw new ObjectDisposedException("buffer");
      }
      if (buffer.AcceleratorType != AcceleratorType.CPU && buffer.AcceleratorType != AcceleratorType.Cuda)
      {
        throw new ArgumentException(
            $"buffer belongs to an accelerator of type {buffer.AcceleratorType}, whose memory has no address: "
            + "use one of type CPU or Cuda");
      }
      return Gradscaler.Tensor.At(buffer.NativePtr, buffer.Length, dtype, buffer);
    }
  }
}
