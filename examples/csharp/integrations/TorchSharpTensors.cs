// SPDX-License-Identifier: Apache-2.0
using System;
using Gradscaler;
using TorchSharp;

namespace Integrations
{
  /// <summary>Memory of TorchSharp's tensors.</summary>
  public static class TorchSharpTensors
  {
    /// <summary>
    /// All elements of a tensor of floats, on the CPU or a CUDA device. Keep it undisposed as long as this is used.
    /// </summary>
    public static Tensor Tensor(torch.Tensor source)
    {
      if (!source.is_contiguous() || source.element_size() != sizeof(float))
      {
        throw new ArgumentException("the tensor is not contiguous, or not of floats");
      }
      long start = source.storage<float>().data_ptr().ToInt64();
      return Gradscaler.Tensor.At(new IntPtr(start + source.storage_offset() * sizeof(float)), source.numel(),
                                  DType.Fp32);
    }
  }
}
