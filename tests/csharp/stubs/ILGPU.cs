// SPDX-License-Identifier: Apache-2.0
// Stub to compile a sample against. Signatures: ILGPU 1.5.3, ILGPU.Runtime.MemoryBuffer,
// ILGPU.Runtime.AcceleratorStream, ILGPU.Runtime.Cuda.CudaStream.
using System;

namespace ILGPU.Runtime
{
  public abstract class MemoryBuffer
  {
    public IntPtr NativePtr { get; protected set; }
    public long Length { get; private set; }
    public int ElementSize { get; private set; }
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
