// SPDX-License-Identifier: Apache-2.0
// The adapter for ILGPU with ILGPU itself, on its CPU accelerator.
using System;
using System.Runtime.CompilerServices;
using ILGPU;
using ILGPU.Runtime;
using ILGPU.Runtime.CPU;
using Integrations;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class IlgpuPackageTests
  {
    private static void WithAccelerator(Action<Context, Accelerator> test)
    {
      using (ILGPU.Context ilgpu = ILGPU.Context.Create(builder => builder.CPU()))
      using (Accelerator accelerator = ilgpu.GetCPUDevice(0).CreateAccelerator(ilgpu))
      using (Context context = Context.Cpu(1))
      {
        test(context, accelerator);
      }
    }

    [Test]
    public void WeightsAreSteppedInPlace()
    {
      WithAccelerator((context, accelerator) => {
        using (MemoryBuffer1D<float, Stride1D.Dense> weights = accelerator.Allocate1D(new[] { 1f, 2, 3 }))
        using (MemoryBuffer1D<ILGPU.Half, Stride1D.Dense> gradients =
                   accelerator.Allocate1D(new[] { (ILGPU.Half)8f, (ILGPU.Half)(-4f), (ILGPU.Half)0f }))
        using (var parameters = new TensorList(context, IlgpuBuffers.Tensor(weights)))
        using (var grads = new TensorList(context, IlgpuBuffers.Tensor(gradients)))
        using (var optimizer = new Optimizer(context, World.Sgd(), parameters, grads))
        using (var scaler = new GradScaler(context, new ScalerOptions { InitScale = 8 }))
        {
          scaler.Step(optimizer);
          scaler.Update();
          Assert.That(weights.GetAsArray1D(), Is.EqualTo(new[] { 0, 2.5f, 3 }));
          gradients.CopyFromCPU(new[] { (ILGPU.Half)0f, ILGPU.Half.PositiveInfinity, (ILGPU.Half)0f });
          scaler.Step(optimizer);
          scaler.Update();
          Assert.That(weights.GetAsArray1D(), Is.EqualTo(new[] { 0, 2.5f, 3 }));
          Assert.That(scaler.GetScale(), Is.EqualTo(4));
        }
      });
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static TensorList Forgotten(Context context, Accelerator accelerator)
    {
      var values = new double[1 << 12];
      Array.Fill(values, 3.0);
      return new TensorList(context, IlgpuBuffers.Tensor(accelerator.Allocate1D(values)));
    }

    [Test]
    public void AListKeepsTheMemory()
    {
      WithAccelerator((context, accelerator) => {
        using (TensorList list = Forgotten(context, accelerator))
        {
          for (int i = 0; i < 4; i++)
          {
            GC.Collect();
            GC.WaitForPendingFinalizers();
            accelerator.Allocate1D(new double[1 << 12]).Dispose();
          }
          var read = new double[1 << 12];
          Ops.Cast(context, list[0], Tensor.Of(read));
          Assert.That(read, Is.All.EqualTo(3.0));
        }
      });
    }

    [Test]
    public void DisposedBuffersAreRefused()
    {
      WithAccelerator((context, accelerator) => {
        MemoryBuffer1D<float, Stride1D.Dense> buffer = accelerator.Allocate1D<float>(4);
        buffer.Dispose();
        Assert.Throws<ObjectDisposedException>(() => IlgpuBuffers.Tensor(buffer));
      });
    }
  }
}
