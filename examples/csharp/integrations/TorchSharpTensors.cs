// SPDX-License-Identifier: Apache-2.0
using System;
using Gradscaler;
using TorchSharp;

namespace Integrations
{
  /// <summary>Memory of TorchSharp's tensors of Float32 and Float64.</summary>
  public static class TorchSharpTensors
  {
    /// <summary>
    /// All elements of a tensor on the CPU, in place. It must be contiguous: gradients and weights are paired by memory.
    /// The result keeps it alive; do not dispose it, or give it other memory, before the last use.
    /// </summary>
    public static Tensor Tensor(torch.Tensor source)
    {
      if (source.device_type != TorchSharp.DeviceType.CPU)
      {
        throw new ArgumentException(
            $"source is on {source.device_type}, not on the CPU: use CudaTensor and Context.Cuda");
      }
      return Dense(source);
    }

    /// <summary>The same for a tensor on a CUDA device, to be used with Context.Cuda of that index.</summary>
    public static Tensor CudaTensor(torch.Tensor source, int deviceIndex)
    {
      if (source.device_type != TorchSharp.DeviceType.CUDA || source.device_index != deviceIndex)
      {
        throw new ArgumentException(
            $"source is on {source.device_type}:{source.device_index}, not on CUDA:{deviceIndex}");
      }
      return Dense(source);
    }

    /// <summary>
    /// Points a list at the gradients that its parameters have now. To be called after every backward pass if anything
    /// drops gradients between two of them, as Module.zero_grad() does: the next pass makes new ones, elsewhere.
    /// </summary>
    public static void SetGradients(TensorList grads, params torch.Tensor[] parameters)
    {
      var tensors = new Tensor[parameters.Length];
      for (int i = 0; i < parameters.Length; i++)
      {
        torch.Tensor grad = parameters[i].grad;
        if ((object)grad == null)
        {
          throw new ArgumentException($"parameters[{i}] has no gradient: run the backward pass before");
        }
        tensors[i] = grad.device_type == TorchSharp.DeviceType.CUDA ? CudaTensor(grad, grad.device_index) : Tensor(grad);
      }
      grads.SetTensors(tensors);
    }

    private static Tensor Dense(torch.Tensor source)
    {
      if (!source.is_contiguous())
      {
        throw new ArgumentException("source is not contiguous: pass source.contiguous(), and write to that");
      }
      if (source.is_neg())
      {
        throw new ArgumentException("source is a negated view: pass source.resolve_neg()");
      }
      // Of another type than the tensor's, storage<T>() is that of a converted copy, which is gone when it is collected.
      switch (source.dtype)
      {
        case torch.ScalarType.Float32:
          return At(source, source.storage<float>(), sizeof(float), DType.Fp32);
        case torch.ScalarType.Float64:
          return At(source, source.storage<double>(), sizeof(double), DType.Fp64);
        default:
          throw new ArgumentException(
              $"source is of type {source.dtype}, not of Float32 or Float64, "
              + "the types of which TorchSharp tells the address");
      }
    }

    private static Tensor At(torch.Tensor source, torch.Storage storage, int size, DType dtype)
    {
      long start = storage.data_ptr().ToInt64();
      return Gradscaler.Tensor.At(new IntPtr(start + source.storage_offset() * size), source.numel(), dtype, source);
    }
  }
}
