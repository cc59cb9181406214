// SPDX-License-Identifier: Apache-2.0
using System;
using Gradscaler;
using ManagedCuda;

namespace Integrations
{
  /// <summary>Memory and streams of ManagedCUDA.</summary>
  public static class ManagedCudaVariables
  {
    /// <summary>All elements of a variable, which is kept alive. Do not dispose it before.</summary>
    public static Tensor Tensor(CudaDeviceVariable<float> variable)
    {
      IntPtr address = variable.DevicePointer.Pointer;
      return Gradscaler.Tensor.At(address, variable.Size, DType.Fp32, variable);
    }

    /// <summary>For the methods with a stream.</summary>
    public static IntPtr Stream(CudaStream stream) => stream.Stream.Pointer;
  }
}
