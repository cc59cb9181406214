// SPDX-License-Identifier: Apache-2.0
// Small optimizer state: saved, loaded into another format, converted by hand, and with scales of the caller.
using System;
using System.Linq;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class StateFormatTests
  {
    private const int Count = 100; // three groups of 32, and a part of one

    /// <summary>AdamW on weights in bf16 with gradients from -0.5 to 0.5.</summary>
    private sealed class Training : IDisposable
    {
      internal readonly Context Context = Context.Cpu(1);
      internal readonly ushort[] Weights = new ushort[Count];
      internal readonly float[] Gradients = Enumerable.Range(-50, Count).Select(i => i / 100f).ToArray();
      internal readonly TensorList Params, Grads;
      internal readonly Optimizer Optimizer;

      internal Training(StateFormat state, MasterFormat master)
      {
        Params = new TensorList(Context, Tensor.Of(Weights, DType.Bf16));
        Grads = new TensorList(Context, Tensor.Of(Gradients));
        var options = new OptimizerOptions(OptimizerKind.AdamW) { StateFormat = state, MasterFormat = master };
        Optimizer = new Optimizer(Context, options, Params, Grads);
      }

      /// <summary>As fp32: a slot, or remainders with the weights.</summary>
      internal float[] Decoded(Tensor state)
      {
        var full = new float[Count];
        Convert(state, Tensor.Of(full));
        return full;
      }

      internal void Convert(Tensor from, Tensor to) =>
          Ops.ConvertState(Context, new[] { from }, new[] { Tensor.Of(Weights, DType.Bf16) }, new[] { to });

      public void Dispose()
      {
        Optimizer.Dispose();
        Grads.Dispose();
        Params.Dispose();
        Context.Dispose();
      }
    }

    private static Tensor Codes() =>
        Tensor.Allocate(DType.Fp8E4m3, Count).WithScales(Tensor.Allocate(DType.Fp8E8m0, 4));

    /// <summary>Loaded into fp32 state, every moment and every master has the value that ConvertState gives it.</summary>
    [Test]
    public void SavedLoadedAndConverted()
    {
      foreach (StateFormat format in Enum.GetValues(typeof(StateFormat)))
      {
        using (var from = new Training(format, MasterFormat.Split16))
        using (var full = new Training(StateFormat.Full, MasterFormat.Split16))
        {
          for (int step = 0; step < 3; step++)
          {
            from.Optimizer.Step();
          }
          Assert.That(Tensor.SizeOf(from.Optimizer.StateTensor(1, 0).DType),
                      Is.EqualTo(format == StateFormat.Full ? 4 : format == StateFormat.Bits16 ? 2 : 1));
          var saved = new byte[from.Optimizer.SaveSize];
          from.Optimizer.Save(saved);
          from.Weights.CopyTo(full.Weights, 0);
          full.Optimizer.Load(saved);
          World.Invalid(() => full.Optimizer.Load(new ReadOnlySpan<byte>(saved, 0, saved.Length - 1)));
          Assert.That(full.Optimizer.GetStepsApplied(), Is.EqualTo(3));
          Assert.That(from.Optimizer.StateCount, Is.EqualTo(3));
          Assert.That(from.Optimizer.StateName(0), Is.EqualTo("exp_avg"));
          Assert.That(from.Optimizer.StateTensor(0, 0).Count, Is.EqualTo(Count));
          for (int slot = 0; slot < 3; slot++)
          {
            float[] values = from.Decoded(from.Optimizer.StateTensor(slot, 0));
            Assert.That(full.Decoded(full.Optimizer.StateTensor(slot, 0)), Is.EqualTo(values), format.ToString());
            Assert.That(values[0], Is.Not.EqualTo(0), format.ToString());
          }
        }
      }
    }

    /// <summary>
    /// Codes of 8 bits for squares have other scales; means that move slowly are bf16 without any. With AMSGrad
    /// squares have 16 bits.
    /// </summary>
    [Test]
    public void ScalesOfState()
    {
      foreach (StateFormat format in new[] { StateFormat.Bits16, StateFormat.Bits8 })
      {
        var options = new OptimizerOptions(OptimizerKind.AdamW) { StateFormat = StateFormat.Bits8, Beta1 = 0.999 };
        var withMaximum = new OptimizerOptions(OptimizerKind.AdamW)
        {
          StateFormat = StateFormat.Bits8,
          Amsgrad = true,
        };
        using (var training = new Training(format, MasterFormat.None))
        using (var slow = new Optimizer(training.Context, options, training.Params, training.Grads))
        using (var maximum = new Optimizer(training.Context, withMaximum, training.Params, training.Grads))
        {
          foreach (int slot in new[] { 1, 2 })
          {
            Assert.That(maximum.StateTensor(slot, 0).DType, Is.EqualTo(DType.Ufp16E6m10));
            Assert.That(maximum.StateTensor(slot, 0).Scales.DType, Is.EqualTo(DType.Fp8E8m0));
          }
          training.Optimizer.Step();
          slow.Step();
          bool small = format == StateFormat.Bits8;
          Tensor mean = training.Optimizer.StateTensor(0, 0), squares = training.Optimizer.StateTensor(1, 0);
          Assert.That(mean.DType, Is.EqualTo(small ? DType.Fp8E4m3 : DType.Bf16));
          Assert.That(mean.Scales?.DType, Is.EqualTo(small ? DType.Fp8E8m0 : (DType?)null));
          Assert.That(squares.DType, Is.EqualTo(small ? DType.Uint8Log : DType.Ufp16E6m10));
          Assert.That(squares.Scales.DType, Is.EqualTo(small ? DType.Int16 : DType.Fp8E8m0));
          Assert.That(squares.Scales.Count, Is.EqualTo(4));
          Assert.That(squares.Slice(32, 8).Scales.Address.ToInt64(),
                      Is.EqualTo(squares.Scales.Address.ToInt64() + (small ? 2 : 1)));
          Assert.That(slow.StateTensor(0, 0).DType, Is.EqualTo(DType.Bf16));
          Assert.That(slow.StateTensor(0, 0).Scales, Is.Null);
          Assert.That(slow.StateTensor(1, 0).DType, Is.EqualTo(DType.Uint8Log));
          // Into codes of the caller and back.
          float[] values = training.Decoded(squares);
          Tensor codes = Tensor.Allocate(squares.DType, Count).WithScales(Tensor.Allocate(squares.Scales.DType, 4));
          training.Convert(squares, codes);
          Assert.That(training.Decoded(codes), Is.EqualTo(values));
          Assert.That(values[0], Is.EqualTo(0.5f * 0.5f * 0.001f).Within(1e-5f));
          World.Invalid(() => codes.WithScales(Tensor.Allocate(small ? DType.Fp8E8m0 : DType.Int16, 4)));
          World.Invalid(() => Tensor.Of(training.Weights, DType.Bf16).WithScales(codes.Scales));
        }
      }
    }

    /// <summary>Codes that the caller makes, and their scales, which are refused as the codes are.</summary>
    [Test]
    public void Scales()
    {
      Tensor codes = Codes();
      Assert.That(codes.Slice(32, 8).Scales.Address.ToInt64(), Is.EqualTo(codes.Scales.Address.ToInt64() + 1));
      World.Invalid(() => codes.Slice(16, 8));
      World.Invalid(() => codes.WithScales(codes));
      World.Invalid(() => codes.WithScales(Tensor.Allocate(DType.Fp8E8m0, 3)));
      byte[] bytes = new byte[Count], scales = new byte[4];
      codes = Tensor.Of(bytes, DType.Fp8E4m3).WithScales(Tensor.Of(scales, DType.Fp8E8m0));
      using (var training = new Training(StateFormat.Bits8, MasterFormat.None))
      {
        using (var state = new TensorList(training.Context, codes))
        using (var lion = new Optimizer(training.Context, new OptimizerOptions(OptimizerKind.Lion), training.Params,
                                        training.Grads, null, state))
        {
          lion.Step();
          Assert.That(bytes[50], Is.EqualTo(0));
          Assert.That(bytes[99], Is.Not.EqualTo(0));
          Assert.That(scales[3], Is.Not.EqualTo(0));
          Tensor flash = Tensor.Allocate(DType.Int8Softsign, Count).WithScales(Tensor.Allocate(DType.Fp16, 4));
          training.Convert(Tensor.Of(training.Gradients), flash);
          Assert.That(training.Decoded(flash)[99], Is.EqualTo(0.49).Within(0.01));
          World.Invalid(() => flash.WithScales(codes.Scales));
          World.Invalid(() => state.SetTensors(new[] { Codes() }));
          state.SetTensors(new[] { Codes().WithScales(codes.Scales) });
        }
        Tensor held = training.Optimizer.StateTensor(0, 0).Scales;
        using (var list = new TensorList(training.Context, codes.WithScales(held)))
        {
          Assert.That(list[0].Scales.Address, Is.EqualTo(held.Address));
          training.Optimizer.Dispose();
          Assert.Throws<ObjectDisposedException>(() => list[0].ToString());
        }
      }
    }
  }
}
