// SPDX-License-Identifier: Apache-2.0
using System;
using Gradscaler;
using ILGPU.Runtime;
using ILGPU.Runtime.Cuda;

namespace Integrations
{
  /// <summary>Memory and streams of ILGPU's CUDA accelerator.</summary>
  public static class IlgpuBuffers
  {
    /// <summary>All elements, as of a MemoryBuffer1D of floats, which is kept alive. Do not dispose it before.</summary>
    public static Tensor Tensor(MemoryBuffer buffer, DType dtype)
    {
      if (buffer.ElementSize != Gradscaler.Tensor.SizeOf(dtype))
      {
        throw new ArgumentException("the elements of the buffer are not " + dtype);
      }
      return Gradscaler.Tensor.At(buffer.NativePtr, buffer.Length, dtype, buffer);
    }

    /// <summary>For the methods with a stream.</summary>
    public static IntPtr Stream(AcceleratorStream stream)
    {
      return ((CudaStream)stream).StreamPtr;
    }
  }
}
