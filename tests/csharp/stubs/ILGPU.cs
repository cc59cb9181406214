// SPDX-License-Identifier: Apache-2.0
// Stub to compile a sample against. Signatures: ILGPU 1.5.3, ILGPU.Half, ILGPU.Stride1D,
// ILGPU.Runtime.MemoryBuffer, .MemoryBuffer1D, .AcceleratorType, .AcceleratorStream, ILGPU.Runtime.Cuda.CudaStream.
using System;

namespace ILGPU
{
  public struct Half
  {
  }

  public static class Stride1D
  {
    public struct Dense
    {
    }
  }
}

namespace ILGPU.Runtime
{
  public enum AcceleratorType
  {
    CPU,
    Cuda,
    OpenCL
  }

  public abstract class MemoryBuffer
  {
    public abstract AcceleratorType AcceleratorType { get; }
    public abstract bool IsDisposed { get; }
    public IntPtr NativePtr { get; protected set; }
    public long Length { get; private set; }
  }

  public abstract class MemoryBuffer1D<T, TStride> : MemoryBuffer where T : struct where TStride : struct
  {
  }

  public abstract class AcceleratorStream
  {
  }
}

namespace ILGPU.Runtime.Cuda
{
  public abstract class CudaStream : AcceleratorStream
  {
    public abstract IntPtr StreamPtr { get; }
  }
}
