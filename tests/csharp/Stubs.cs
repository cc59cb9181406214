// SPDX-License-Identifier: Apache-2.0
// Stand-ins for libraries that are not here, for compiling examples/csharp/integrations and the binding under
// NET5_0_OR_GREATER: the signatures of TorchSharp 0.107.0, ILGPU 1.5.3, ManagedCUDA 12 (March 2025) and .NET 5's
// System.Half that they use.
using System;

namespace System
{
  public struct Half
  {
  }
}

namespace TorchSharp
{
  public enum DeviceType
  {
    CPU = 0,
    CUDA = 1
  }

  public static class torch
  {
    public enum ScalarType : sbyte
    {
      Float32 = 6,
      Float64 = 7
    }

    public abstract class Tensor
    {
      public abstract DeviceType device_type { get; }
      public abstract int device_index { get; }
      public abstract ScalarType dtype { get; }
      public abstract Tensor grad { get; set; }
      public abstract bool is_neg();
      public abstract bool is_contiguous();
      public abstract long numel();
      public abstract long storage_offset();
      public abstract Storage<T> storage<T>() where T : struct;
    }

    public abstract class Storage
    {
      public abstract IntPtr data_ptr();
    }

    public abstract class Storage<T> : Storage where T : struct
    {
    }
  }
}

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
    Cuda
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
    public static implicit operator long(SizeT value) => 0;

    public static implicit operator IntPtr(SizeT value) => IntPtr.Zero;
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
