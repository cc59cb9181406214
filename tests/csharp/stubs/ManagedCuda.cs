// SPDX-License-Identifier: Apache-2.0
// Stub to compile a sample against. Signatures: ManagedCUDA 12 (March 2025), ManagedCuda.CudaDeviceVariable<T>,
// ManagedCuda.CudaStream, ManagedCuda.BasicTypes.CUdeviceptr, CUstream and SizeT.
using System;

namespace ManagedCuda
{
  public abstract class CudaDeviceVariable<T> where T : struct
  {
    public abstract BasicTypes.CUdeviceptr DevicePointer { get; }
    public abstract BasicTypes.SizeT Size { get; }
  }

  public abstract class CudaStream
  {
    public abstract BasicTypes.CUstream Stream { get; }
  }
}

namespace ManagedCuda.BasicTypes
{
  public struct SizeT
  {
    public static implicit operator long(SizeT value)
    {
      throw new NotSupportedException();
    }

    public static implicit operator IntPtr(SizeT value)
    {
      throw new NotSupportedException();
    }
  }

  public struct CUdeviceptr
  {
    public SizeT Pointer;
  }

  public struct CUstream
  {
    public IntPtr Pointer;
  }
}
