// SPDX-License-Identifier: Apache-2.0
// Small optimizer state: trained with, saved, loaded into another format, converted by hand, and as shards.
using System;
using System.Linq;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class StateFormatTests
  {
    private const int Count = 100; // three groups of 32, and a part of one

    /// <summary>Weights in bf16 that AdamW takes to their targets.</summary>
    private sealed class Training : IDisposable
    {
      internal readonly Context Context = Context.Cpu(1);
      internal readonly ushort[] Weights = new ushort[Count];
      internal readonly float[] Gradients = new float[Count];
      internal readonly TensorList Params, Grads;
      internal readonly Optimizer Optimizer;

      internal Training(StateFormat state, MasterFormat master)
      {
        Params = new TensorList(Context, Tensor.Of(Weights, DType.Bf16));
        Grads = new TensorList(Context, Tensor.Of(Gradients));
        var options = new OptimizerOptions(OptimizerKind.AdamW) { Lr = 0.02, WeightDecay = 0, Seed = 3 };
        options.StateFormat = state;
        options.MasterFormat = master;
        Optimizer = new Optimizer(Context, options, Params, Grads);
      }

      internal void Steps(int count)
      {
        for (int step = 0; step < count; step++)
        {
          Ops.Cast(Context, Weights, DType.Bf16, Gradients);
          for (int i = 0; i < Count; i++)
          {
            Gradients[i] -= Target(i);
          }
          Optimizer.Step();
        }
      }

      internal byte[] Saved()
      {
        var saved = new byte[Optimizer.SaveSize];
        Optimizer.Save(saved);
        return saved;
      }

      /// <summary>As fp32: a slot, or remainders with the weights.</summary>
      internal float[] Decoded(Tensor state)
      {
        var full = new float[Count];
        Convert(state, Tensor.Of(full));
        return full;
      }

      internal Tensor Convert(Tensor from, Tensor to)
      {
        Ops.ConvertState(Context, new[] { from }, new[] { Tensor.Of(Weights, DType.Bf16) }, new[] { to });
        return to;
      }

      public void Dispose()
      {
        Optimizer.Dispose();
        Grads.Dispose();
        Params.Dispose();
        Context.Dispose();
      }
    }

    private static float Target(int i)
    {
      return (i - 50) / 64f;
    }

    private static Tensor Codes()
    {
      return Tensor.Allocate(DType.Fp8E4m3, Count).WithScales(Tensor.Allocate(DType.Fp8E8m0, 4));
    }

    [Test]
    public void TrainSaveLoadConvert()
    {
      foreach (StateFormat state in Enum.GetValues(typeof(StateFormat)))
      {
        foreach (MasterFormat master in Enum.GetValues(typeof(MasterFormat)))
        {
          TrainSaveLoadConvert(state, master, state + " " + master);
        }
      }
    }

    private static void TrainSaveLoadConvert(StateFormat state, MasterFormat master, string format)
    {
      using (var from = new Training(state, master))
      using (var full = new Training(StateFormat.Full, master))
      using (var same = new Training(state, master))
      {
        from.Steps(200);
        var reached = new float[Count];
        Ops.Cast(from.Context, from.Weights, DType.Bf16, reached);
        for (int i = 0; i < Count; i++)
        {
          // bf16 near 0.8 has steps of 2^-8; without masters smaller updates are lost.
          Assert.That(reached[i], Is.EqualTo(Target(i)).Within(master == MasterFormat.None ? 0.05 : 0.02),
                      format);
        }
        Assert.That(Tensor.SizeOf(from.Optimizer.StateTensor(1, 0).DType),
                    Is.EqualTo(state == StateFormat.Full ? 4 : state == StateFormat.Bits16 ? 2 : 1), format);
        // Loaded into fp32 state, every moment has the value that ConvertState gives it.
        from.Weights.CopyTo(full.Weights, 0);
        full.Optimizer.Load(from.Saved());
        Assert.That(full.Optimizer.GetStepsApplied(), Is.EqualTo(200));
        for (int slot = 0; slot < from.Optimizer.StateCount; slot++)
        {
          Tensor codes = from.Optimizer.StateTensor(slot, 0);
          float[] values = from.Decoded(codes);
          Assert.That(full.Decoded(full.Optimizer.StateTensor(slot, 0)), Is.EqualTo(values), format);
          Assert.That(values[0], Is.Not.EqualTo(0), format);
          // And back.
          Tensor made = Tensor.Allocate(codes.DType, Count).WithScales(
              codes.Scales == null ? null : Tensor.Allocate(DType.Fp8E8m0, (int)codes.Scales.Count));
          Assert.That(from.Decoded(from.Convert(Tensor.Of(values), made)), Is.EqualTo(values), format);
        }
        // Training goes on with the same bits.
        from.Weights.CopyTo(same.Weights, 0);
        same.Optimizer.Load(from.Saved());
        from.Steps(3);
        same.Steps(3);
        Assert.That(same.Weights, Is.EqualTo(from.Weights), format);
        Assert.That(same.Saved(), Is.EqualTo(from.Saved()), format);
      }
    }

    /// <summary>The second half draws the bits of the whole where its offset says that it is the second half.</summary>
    [Test]
    public void ShardsHaveTheBitsOfTheWhole()
    {
      var options = new OptimizerOptions(OptimizerKind.AdamW)
      {
        StateFormat = StateFormat.Bits8, MasterFormat = MasterFormat.Stochastic, Seed = 5
      };
      var results = new ushort[3][];
      for (int run = 0; run < 3; run++)
      {
        int first = run == 0 ? 0 : 64;
        var weights = new ushort[128 - first];
        float[] gradients = Enumerable.Range(first, 128 - first).Select(i => (i % 7 - 3) / 5f).ToArray();
        using (Context context = Context.Cpu(1))
        using (var parameters = new TensorList(context, Tensor.Of(weights, DType.Bf16)))
        using (var grads = new TensorList(context, Tensor.Of(gradients)))
        using (var optimizer = new Optimizer(context, options, parameters, grads))
        {
          if (run == 1)
          {
            optimizer.SetOffsets(new[] { 64L });
          }
          for (int step = 0; step < 20; step++)
          {
            optimizer.Step();
          }
          Assert.Throws<InvalidArgumentException>(() => optimizer.SetOffsets(new[] { 33L }));
          Assert.Throws<InvalidArgumentException>(() => optimizer.SetOffsets(new[] { 0L, 32L }));
        }
        results[run] = weights.Skip(64 - first).ToArray();
      }
      Assert.That(results[1], Is.EqualTo(results[0]));
      Assert.That(results[2], Is.Not.EqualTo(results[0]));
    }

    /// <summary>Codes that the caller makes, and their scales, which are refused as the codes are.</summary>
    [Test]
    public void Scales()
    {
      Tensor codes = Codes();
      Assert.That(codes.Slice(32, 8).Scales.Address.ToInt64(), Is.EqualTo(codes.Scales.Address.ToInt64() + 1));
      Assert.Throws<InvalidArgumentException>(() => codes.Slice(16, 8));
      Assert.Throws<InvalidArgumentException>(() => codes.WithScales(codes));
      Assert.Throws<InvalidArgumentException>(() => codes.WithScales(Tensor.Allocate(DType.Fp8E8m0, 3)));
      byte[] bytes = new byte[Count], scales = new byte[4];
      codes = Tensor.Of(bytes, DType.Fp8E4m3).WithScales(Tensor.Of(scales, DType.Fp8E8m0));
      using (var training = new Training(StateFormat.Bits8, MasterFormat.None))
      {
        using (var state = new TensorList(training.Context, codes))
        using (var lion = new Optimizer(training.Context, new OptimizerOptions(OptimizerKind.Lion), training.Params,
                                        training.Grads, null, state))
        {
          training.Gradients[99] = 1;
          lion.Step();
          Assert.That(bytes[0], Is.EqualTo(0));
          Assert.That(bytes[99], Is.Not.EqualTo(0));
          Assert.That(scales[3], Is.Not.EqualTo(0));
          Tensor flash = Tensor.Allocate(DType.Int8Softsign, Count).WithScales(Tensor.Allocate(DType.Fp16, 4));
          training.Convert(Tensor.Of(training.Gradients), flash);
          Assert.That(training.Decoded(flash)[99], Is.EqualTo(1).Within(0.01));
          Assert.Throws<InvalidArgumentException>(() => flash.WithScales(codes.Scales));
          Assert.Throws<InvalidArgumentException>(() => state.SetTensors(new[] { Codes() }));
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
