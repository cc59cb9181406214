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
      internal readonly Optimizer Optimizer;
      private readonly float[] gradients = new float[Count];
      private readonly TensorList parameters;
      private readonly TensorList grads;

      internal Training(StateFormat state, MasterFormat master)
      {
        parameters = new TensorList(Context, Tensor.Of(Weights, DType.Bf16));
        grads = new TensorList(Context, Tensor.Of(gradients));
        Optimizer = new Optimizer(Context, new OptimizerOptions(OptimizerKind.AdamW)
                                  {
                                    Lr = 0.02, WeightDecay = 0, StateFormat = state, MasterFormat = master, Seed = 3
                                  }, parameters, grads);
      }

      internal float[] Values()
      {
        var values = new float[Count];
        Ops.Cast(Context, Weights, DType.Bf16, values);
        return values;
      }

      internal void Steps(int count)
      {
        for (int step = 0; step < count; step++)
        {
          float[] now = Values();
          for (int i = 0; i < Count; i++)
          {
            gradients[i] = now[i] - Target(i);
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

      /// <summary>A slot as fp32, by Ops.ConvertState.</summary>
      internal float[] Decoded(int slot)
      {
        var full = new float[Count];
        Ops.ConvertState(Context, new[] { Optimizer.StateTensor(slot, 0) },
                         slot == 2 ? new[] { Tensor.Of(Weights, DType.Bf16) } : null, new[] { Tensor.Of(full) });
        return full;
      }

      public void Dispose()
      {
        Optimizer.Dispose();
        grads.Dispose();
        parameters.Dispose();
        Context.Dispose();
      }
    }

    private static float Target(int i)
    {
      return (i - 50) / 64f;
    }

    [Test]
    public void TrainSaveLoadConvert([Values(StateFormat.Full, StateFormat.Bits16, StateFormat.Bits8)] StateFormat state,
                                     [Values(MasterFormat.None, MasterFormat.Split16, MasterFormat.Split8,
                                             MasterFormat.Stochastic)] MasterFormat master)
    {
      using (var from = new Training(state, master))
      using (var full = new Training(StateFormat.Full, master))
      using (var same = new Training(state, master))
      {
        from.Steps(200);
        float[] reached = from.Values();
        for (int i = 0; i < Count; i++)
        {
          // bf16 near 0.8 has steps of 2^-8; without masters smaller updates are lost.
          Assert.That(reached[i], Is.EqualTo(Target(i)).Within(master == MasterFormat.None ? 0.05 : 0.02));
        }
        Assert.That(Tensor.SizeOf(from.Optimizer.StateTensor(1, 0).DType),
                    Is.EqualTo(state == StateFormat.Full ? 4 : state == StateFormat.Bits16 ? 2 : 1));
        // Loaded into fp32 state, every moment has the value that ConvertState gives it.
        full.Optimizer.Load(from.Saved());
        Assert.That(full.Optimizer.GetStepsApplied(), Is.EqualTo(200));
        for (int slot = 0; slot < 2; slot++)
        {
          Assert.That(full.Decoded(slot), Is.EqualTo(from.Decoded(slot)));
          Assert.That(full.Decoded(slot).Any(value => value != 0), Is.True);
        }
        // And back: the codes of values that are codes are these codes, so that training goes on with the same bits.
        from.Weights.CopyTo(same.Weights, 0);
        same.Optimizer.Load(from.Saved());
        Assert.That(same.Saved(), Is.EqualTo(from.Saved()));
        Tensor stored = from.Optimizer.StateTensor(0, 0);
        Tensor codes = Tensor.Allocate(stored.DType, Count).WithScales(
            stored.Scales == null ? null : Tensor.Allocate(DType.Fp8E8m0, (int)stored.Scales.Count));
        float[] values = full.Decoded(0), again = new float[Count];
        Ops.ConvertState(from.Context, new[] { Tensor.Of(values) }, null, new[] { codes });
        Ops.ConvertState(from.Context, new[] { codes }, null, new[] { Tensor.Of(again) });
        Assert.That(again, Is.EqualTo(values));
        from.Steps(3);
        same.Steps(3);
        Assert.That(same.Weights, Is.EqualTo(from.Weights));
        Assert.That(same.Saved(), Is.EqualTo(from.Saved()));
      }
    }

    [Test]
    public void MastersAreSplitAndJoined()
    {
      using (var training = new Training(StateFormat.Bits8, MasterFormat.Split16))
      {
        training.Steps(20);
        Assert.That(training.Optimizer.StateName(2), Is.EqualTo("remainder"));
        float[] masters = training.Decoded(2), again = new float[Count];
        Assert.That(masters, Is.Not.EqualTo(training.Values()));
        var rounded = new ushort[Count];
        Ops.Cast(training.Context, masters, rounded, DType.Bf16);
        Assert.That(rounded, Is.EqualTo(training.Weights));
        Tensor remainders = Tensor.Allocate(DType.Int16, Count);
        Tensor[] weights = { Tensor.Of(training.Weights, DType.Bf16) };
        Ops.ConvertState(training.Context, new[] { Tensor.Of(masters) }, weights, new[] { remainders });
        Ops.ConvertState(training.Context, new[] { remainders }, weights, new[] { Tensor.Of(again) });
        Assert.That(again, Is.EqualTo(masters));
        var e = Assert.Throws<InvalidArgumentException>(
            () => Ops.ConvertState(training.Context, new[] { Tensor.Of(masters) }, null, new[] { remainders }));
        Assert.That(e.Argument, Is.EqualTo("weights"));
      }
    }

    /// <summary>The second half draws the bits of the whole where its offset says that it is the second half.</summary>
    [Test]
    public void ShardsHaveTheBitsOfTheWhole()
    {
      var options = new OptimizerOptions(OptimizerKind.AdamW)
      {
        Lr = 0.01, StateFormat = StateFormat.Bits8, MasterFormat = MasterFormat.Stochastic, Seed = 5
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

    /// <summary>Lists of codes that the caller makes: one tensor in 8 bits, one in fp32.</summary>
    [Test]
    public void FormatsByTensor()
    {
      byte[] bytes = new byte[40], scales = new byte[2];
      Tensor codes = Tensor.Of(bytes, DType.Fp8E4m3).WithScales(Tensor.Of(scales, DType.Fp8E8m0));
      var gradients = new float[40];
      gradients[39] = 1;
      using (Context context = Context.Cpu(1))
      using (var parameters = new TensorList(context, Tensor.Of(new float[40]), Tensor.Of(new float[40])))
      using (var grads = new TensorList(context, Tensor.Of(gradients), Tensor.Of(new float[40])))
      using (var state = new TensorList(context, codes, Tensor.Of(new float[40])))
      using (var optimizer = new Optimizer(context, new OptimizerOptions(OptimizerKind.Lion), parameters, grads, null,
                                           state))
      {
        optimizer.Step();
        Assert.That(bytes[0], Is.EqualTo(0));
        Assert.That(bytes[39], Is.Not.EqualTo(0));
        Assert.That(scales[1], Is.Not.EqualTo(0));
        Assert.That(state[0].Scales.Address, Is.EqualTo(codes.Scales.Address));
      }
      Assert.That(codes.Slice(32, 8).Scales.Address.ToInt64(), Is.EqualTo(codes.Scales.Address.ToInt64() + 1));
      using (Context context = Context.Cpu(1))
      using (var state = new TensorList(context, codes))
      {
        Tensor other = codes.WithScales(Tensor.Allocate(DType.Fp8E8m0, 2));
        Assert.Throws<InvalidArgumentException>(() => state.SetTensors(new[] { other }));
        state.SetTensors(new[] { Tensor.Allocate(DType.Fp8E4m3, 40).WithScales(codes.Scales) });
      }
      Assert.Throws<InvalidArgumentException>(() => codes.Slice(16, 8));
      Assert.Throws<InvalidArgumentException>(() => codes.WithScales(codes));
      Assert.Throws<InvalidArgumentException>(() => codes.WithScales(Tensor.Allocate(DType.Fp8E8m0, 3)));
    }

    /// <summary>The memory of scales is kept and refused as that of the codes is.</summary>
    [Test]
    public void ScalesLiveAndDieAsCodesDo()
    {
      using (var training = new Training(StateFormat.Bits8, MasterFormat.None))
      {
        Tensor scales = training.Optimizer.StateTensor(0, 0).Scales;
        using (var list = new TensorList(training.Context, Tensor.Allocate(DType.Fp8E4m3, Count).WithScales(scales)))
        {
          Assert.That(list[0].Scales.Address, Is.EqualTo(scales.Address));
          training.Optimizer.Dispose();
          Assert.Throws<ObjectDisposedException>(() => list[0].ToString());
        }
      }
    }
  }
}
