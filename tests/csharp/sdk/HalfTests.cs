// SPDX-License-Identifier: Apache-2.0
// Parts that the assembly has under .NET 5 and later only: arrays and spans of Half.
using System;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class HalfTests
  {
    private static readonly Half[] Values = { (Half)1, (Half)(-2.5), Half.Epsilon, Half.MaxValue };

    [Test]
    public void AnArrayIsFp16()
    {
      var array = (Half[])Values.Clone();
      Tensor tensor = Tensor.Of(array);
      Assert.That(tensor.DType, Is.EqualTo(DType.Fp16));
      Assert.That(tensor.Count, Is.EqualTo(4));
      Assert.That(tensor.Span<Half>().ToArray(), Is.EqualTo(Values));
      tensor.Slice(1, 2).Span<Half>()[0] = (Half)7;
      Assert.That(array[1], Is.EqualTo((Half)7));
      Assert.That(Assert.Throws<InvalidArgumentException>(() => Tensor.Of(array, DType.Bf16)).Message,
                  Is.StringContaining("Half[], which does not hold Bf16"));
    }

    [Test]
    public void CastsAndScales()
    {
      using (Context context = Context.Cpu(1))
      using (var scaler = new GradScaler(context, new ScalerOptions { InitScale = 4 }))
      {
        var wide = new float[4];
        Ops.Cast(context, Values, wide);
        Assert.That(wide, Is.EqualTo(Array.ConvertAll(Values, v => (float)v)));
        var narrow = new Half[4];
        Ops.Cast(context, wide, narrow);
        Assert.That(narrow, Is.EqualTo(Values));
        scaler.Scale(wide, narrow);
        Assert.That(narrow[1], Is.EqualTo((Half)(-10)));
        Assert.That(Half.IsPositiveInfinity(narrow[3]));
      }
    }
  }
}
