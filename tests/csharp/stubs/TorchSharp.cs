// SPDX-License-Identifier: Apache-2.0
// Stub to compile a sample against. Signatures: TorchSharp 0.107.0, TorchSharp.DeviceType, TorchSharp.torch.ScalarType,
// .Tensor, .Storage, Storage<T>.
using System;

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
      Int32 = 3,
      Float16 = 5,
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
