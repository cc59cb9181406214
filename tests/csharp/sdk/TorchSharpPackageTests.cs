// SPDX-License-Identifier: Apache-2.0
// The adapter for TorchSharp with TorchSharp itself, on the CPU.
using System;
using System.Runtime.CompilerServices;
using Integrations;
using NUnit.Framework;
using TorchSharp;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class TorchSharpPackageTests
  {
    private static void Refused(string part, torch.Tensor source)
    {
      Assert.That(Assert.Throws<ArgumentException>(() => TorchSharpTensors.Tensor(source), part).Message,
                  Is.StringContaining(part));
    }

    [Test]
    public void ElementsAreThoseOfTheTensor()
    {
      using (Context context = Context.Cpu(1))
      {
        var read = new double[6];
        foreach (torch.ScalarType type in new[] { torch.ScalarType.Float32, torch.ScalarType.Float64 })
        {
          torch.Tensor source = torch.arange(12, dtype: type).reshape(4, 3);
          torch.Tensor part = source.narrow(0, 1, 2);
          Tensor tensor = TorchSharpTensors.Tensor(part);
          Assert.That(tensor.Count, Is.EqualTo(6));
          Ops.Cast(context, tensor, Tensor.Of(read));
          Assert.That(read, Is.EqualTo(new double[] { 3, 4, 5, 6, 7, 8 }));
          Ops.Cast(context, Tensor.Of(new double[] { -1, -2, -3, -4, -5, -6 }), tensor);
          Assert.That(source[1, 0].ToDouble(), Is.EqualTo(-1));
          Assert.That(source[2, 2].ToDouble(), Is.EqualTo(-6));
          Assert.That(source[3, 0].ToDouble(), Is.EqualTo(9));
        }
      }
    }

    [Test]
    public void OtherTensorsAreRefused()
    {
      torch.Tensor source = torch.ones(2, 3);
      Refused("not contiguous", source.transpose(0, 1));
      Refused("of type Float16", source.to_type(torch.ScalarType.Float16));
      Refused("of type BFloat16", source.to_type(torch.ScalarType.BFloat16));
      Refused("of type Int32", source.to_type(torch.ScalarType.Int32));
      torch.Tensor complex = torch.complex(torch.ones(1), torch.ones(1));
      Refused("negated view", complex.conj().imag);
      Assert.That(Assert.Throws<ArgumentException>(() => TorchSharpTensors.CudaTensor(source, 0)).Message,
                  Is.StringContaining("not on CUDA:0"));
      using (Context context = Context.Cpu(1))
      using (var list = new TensorList(context, TorchSharpTensors.Tensor(source)))
      {
        Assert.That(Assert.Throws<ArgumentException>(() => TorchSharpTensors.SetGradients(list, source)).Message,
                    Is.StringContaining("parameters[0] has no gradient"));
      }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static TensorList Forgotten(Context context) =>
        new TensorList(context, TorchSharpTensors.Tensor(torch.full(1 << 16, 3.0f)));

    [Test]
    public void AListKeepsTheMemory()
    {
      using (Context context = Context.Cpu(1))
      using (TensorList list = Forgotten(context))
      {
        for (int i = 0; i < 4; i++)
        {
          GC.Collect();
          GC.WaitForPendingFinalizers();
          torch.full(1 << 16, 7.0f).Dispose();
        }
        var read = new float[1 << 16];
        Ops.Cast(context, list[0], Tensor.Of(read));
        Assert.That(read, Is.All.EqualTo(3.0f));
      }
    }

    private static TensorList ListOf(Context context, torch.Tensor first, torch.Tensor second) =>
        new TensorList(context, TorchSharpTensors.Tensor(first), TorchSharpTensors.Tensor(second));

    /// <summary>Autograd's own gradients, scaled and dropped as Module.zero_grad() does; the weights are stepped where the
    /// network has them.</summary>
    [Test]
    public void ALineIsFitted()
    {
      torch.Tensor x = torch.linspace(-1, 1, 64);
      torch.Tensor y = x * 3 - 2;
      torch.Tensor slope = torch.zeros(1, requires_grad: true);
      torch.Tensor offset = torch.zeros(1, requires_grad: true);
      torch.Tensor Loss(float scale)
      {
        return (x * slope + offset - y).square().mean() * scale;
      }
      Loss(0).backward(); // makes the gradients
      using (Context context = Context.Cpu(1))
      using (TensorList parameters = ListOf(context, slope, offset))
      using (TensorList grads = ListOf(context, slope.grad, offset.grad))
      using (var optimizer = new Optimizer(context, World.Sgd(0.3), parameters, grads))
      using (var scaler = new GradScaler(context, new ScalerOptions { InitScale = 1024 }))
      {
        for (int i = 0; i < 100; i++)
        {
          slope.grad = null;
          offset.grad = null;
          Loss(scaler.GetScale()).backward();
          TorchSharpTensors.SetGradients(grads, slope, offset);
          scaler.Step(optimizer);
          scaler.Update();
        }
        Assert.That(slope.item<float>(), Is.EqualTo(3).Within(1e-3));
        Assert.That(offset.item<float>(), Is.EqualTo(-2).Within(1e-3));
        float before = slope.item<float>();
        offset.grad.fill_(float.PositiveInfinity);
        scaler.Step(optimizer);
        scaler.Update();
        Assert.That(slope.item<float>(), Is.EqualTo(before));
        Assert.That(scaler.GetScale(), Is.EqualTo(512));
      }
    }
  }
}
