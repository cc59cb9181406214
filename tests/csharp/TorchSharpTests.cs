// SPDX-License-Identifier: Apache-2.0
// What the adapter for TorchSharp takes and refuses, on tensors of the stub: TorchSharp itself is not here.
using System;
using Integrations;
using NUnit.Framework;
using TorchSharp;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class TorchSharpTests
  {
    private sealed class FakeStorage<T> : torch.Storage<T> where T : struct
    {
      public override IntPtr data_ptr()
      {
        return new IntPtr(1 << 20);
      }
    }

    private sealed class Fake : torch.Tensor
    {
      internal torch.ScalarType Type = torch.ScalarType.Float32;
      internal TorchSharp.DeviceType Device = TorchSharp.DeviceType.CPU;
      internal bool Contiguous = true;
      internal bool Negated;

      public override TorchSharp.DeviceType device_type
      {
        get { return Device; }
      }

      public override int device_index
      {
        get { return Device == TorchSharp.DeviceType.CPU ? -1 : 1; }
      }

      public override torch.ScalarType dtype
      {
        get { return Type; }
      }

      public override torch.Tensor grad { get; set; }

      public override bool is_neg()
      {
        return Negated;
      }

      public override bool is_contiguous()
      {
        return Contiguous;
      }

      public override long numel()
      {
        return 5;
      }

      public override long storage_offset()
      {
        return 3;
      }

      /// <summary>Of another type it would be that of a copy.</summary>
      public override torch.Storage<T> storage<T>()
      {
        Assert.That(typeof(T).Name, Is.EqualTo(Type == torch.ScalarType.Float64 ? "Double" : "Single"));
        return new FakeStorage<T>();
      }
    }

    private static void Refused(string part, TestDelegate call)
    {
      Assert.That(Assert.Throws<ArgumentException>(call, part).Message, Is.StringContaining(part));
    }

    [Test]
    public void TypesOfWhichTheAddressIsKnown()
    {
      Tensor single = TorchSharpTensors.Tensor(new Fake());
      Assert.That(single.DType, Is.EqualTo(DType.Fp32));
      Assert.That(single.Count, Is.EqualTo(5));
      Assert.That(single.Address, Is.EqualTo(new IntPtr((1 << 20) + 12)));
      Tensor wide = TorchSharpTensors.Tensor(new Fake { Type = torch.ScalarType.Float64 });
      Assert.That(wide.DType, Is.EqualTo(DType.Fp64));
      Assert.That(wide.Address, Is.EqualTo(new IntPtr((1 << 20) + 24)));
    }

    [Test]
    public void OtherTensorsAreRefused()
    {
      Refused("of type Int32", () => TorchSharpTensors.Tensor(new Fake { Type = torch.ScalarType.Int32 }));
      Refused("of type Float16", () => TorchSharpTensors.Tensor(new Fake { Type = torch.ScalarType.Float16 }));
      Refused("not contiguous", () => TorchSharpTensors.Tensor(new Fake { Contiguous = false }));
      Refused("negated view", () => TorchSharpTensors.Tensor(new Fake { Negated = true }));
    }

    [Test]
    public void AParameterWithoutAGradientIsRefused()
    {
      using (Context context = Context.Cpu(1))
      using (var list = new TensorList(context, TorchSharpTensors.Tensor(new Fake())))
      {
        TorchSharpTensors.SetGradients(list, new Fake { grad = new Fake() });
        Refused("parameters[0] has no gradient", () => TorchSharpTensors.SetGradients(list, new Fake()));
      }
    }

    [Test]
    public void DevicesAreNotMixedUp()
    {
      var onGpu = new Fake { Device = TorchSharp.DeviceType.CUDA };
      Assert.That(TorchSharpTensors.CudaTensor(onGpu, 1).Count, Is.EqualTo(5));
      Refused("on CUDA, not on the CPU", () => TorchSharpTensors.Tensor(onGpu));
      Refused("on CUDA:1, not on CUDA:0", () => TorchSharpTensors.CudaTensor(onGpu, 0));
      Refused("not on CUDA:0", () => TorchSharpTensors.CudaTensor(new Fake(), 0));
    }
  }
}
