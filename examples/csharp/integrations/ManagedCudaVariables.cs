// SPDX-License-Identifier: Apache-2.0
using System;
using Gradscaler;
using ManagedCuda;

namespace Integrations
{
  /// <summary>Memory and streams of ManagedCUDA.</summary>
  public static class ManagedCudaVariables
  {
    /// <summary>All elements. Keep the variable undisposed as long as the tensor is used.</summary>
    public static Tensor Tensor(CudaDeviceVariable<float> variable)
    {
      IntPtr address = variable.DevicePointer.Pointer;
      return Gradscaler.Tensor.At(address, variable.Size, DType.Fp32);
    }

    /// <summary>For the methods with a stream.</summary>
    public static IntPtr Stream(CudaStream stream)
    {
      return stream.Stream.Pointer;
    }
  }
}
