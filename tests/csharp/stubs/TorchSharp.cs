// SPDX-License-Identifier: Apache-2.0
// Stub to compile a sample against. Signatures: TorchSharp 0.107.0, TorchSharp.torch.Tensor, .Storage, Storage<T>.
using System;

namespace TorchSharp
{
  public static class torch
  {
    public abstract class Tensor
    {
      public abstract bool is_contiguous();
      public abstract long numel();
      public abstract long element_size();
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
