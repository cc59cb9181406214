// SPDX-License-Identifier: Apache-2.0
// That every method reaches the function it is named after, with its arguments in order.
using System;
using System.Linq;
using System.Reflection;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class ScalerTests
  {
    [Test]
    public void OverflowSkipsAndBacksOff()
    {
      using (var w = new World(5))
      {
        w.Fill(0.5f);
        w.Gradients[3] = float.NaN;
        w.Scaler.Step(w.Optimizer);
        w.Scaler.Update();
        Assert.That(w.Optimizer.GetUnchanged(), Is.EqualTo(0));
        Assert.That(w.Scaler.GetScale(), Is.EqualTo(512f));
        Assert.That(w.Weights[0], Is.EqualTo(0f));
        Assert.That(w.Optimizer.GetStepsSkipped(), Is.EqualTo(1));
        Report report = w.Scaler.GetReport(w.Grads);
        Assert.That(report.Overflow, Is.True);
        Assert.That(report.NanCount, Is.EqualTo(1));
        Assert.That(report.FirstTensor, Is.EqualTo(0));
        Assert.That(report.FirstElement, Is.EqualTo(3));
        HistoryEntry entry = w.Scaler.GetHistory().Single();
        Assert.That(entry.Overflow, Is.True);
        Assert.That(entry.Scale, Is.EqualTo(512f));
      }
    }

    [Test]
    public void SpikesSkipAndAreReported()
    {
      var options = new ScalerOptions(Preset.Check) { SkipNorm = 10, HistoryCapacity = 4 };
      using (var w = new World(1, options))
      {
        w.Fill(4);
        w.Scaler.StepAndUpdate(w.Optimizer);
        w.Fill(20);
        w.Scaler.CheckGrads(w.Grads);
        DeviceState words = w.Scaler.GetDeviceState(w.Grads);
        var limit = new double[1];
        var spike = new float[1];
        Ops.Cast(w.Context, Tensor.At(words.NormLimit, 1, DType.Fp64), Tensor.Of(limit));
        Ops.Cast(w.Context, Tensor.At(words.Spike, 1, DType.Fp32), Tensor.Of(spike));
        Assert.That(limit[0], Is.EqualTo(10.0));
        Assert.That(BitConverter.ToInt32(BitConverter.GetBytes(spike[0]), 0), Is.EqualTo(1)); // the bits
        Assert.That(w.Scaler.GetDeviceState().Spike, Is.EqualTo(IntPtr.Zero));
        w.Scaler.StepAndUpdate(w.Optimizer);
        Assert.That(w.Weights[0], Is.EqualTo(-4f));
        Report report = w.Scaler.GetReport();
        Assert.That(report.Spike, Is.True);
        Assert.That(report.Overflow, Is.False);
        Assert.That(report.Spikes, Is.EqualTo(1));
        Assert.That(report.NormLimit, Is.EqualTo(10.0));
        Assert.That(report.GradNorm, Is.EqualTo(20.0));
        Assert.That(report.NormAverage, Is.EqualTo(4.0).Within(1e-12));
        Assert.That(w.Scaler.GetState().Spikes, Is.EqualTo(1));
        HistoryEntry[] history = w.Scaler.GetHistory().ToArray();
        Assert.That(history[0].Spike, Is.False);
        Assert.That(history[1].Spike, Is.True);
        Assert.That(history[1].NormLimit, Is.EqualTo(10.0));
      }
    }

    [Test]
    public void ScalesThatStay()
    {
      foreach (Preset preset in new[] { Preset.Check, Preset.StaticScale })
      {
        var options = new ScalerOptions(preset) { GrowthInterval = 1 };
        Assert.That(options.StaticScale, Is.True);
        using (var w = new World(1, options))
        {
          foreach (float gradient in new[] { 1, float.NaN, 1 })
          {
            w.Fill(gradient);
            w.Scaler.StepAndUpdate(w.Optimizer);
            Assert.That(w.Scaler.GetScale(), Is.EqualTo(preset == Preset.Check ? 1f : 128f));
          }
          Assert.That(w.Weights[0], Is.EqualTo(-2f));
          Assert.That(w.Scaler.GetReport().Skipped, Is.EqualTo(1));
        }
      }
    }

    /// <summary>Of the second of two optimizers, after the update.</summary>
    [Test]
    public void GradientsOfBeforeTheUpdateAreRefused()
    {
      using (var w = new World(1))
      using (var parameters = new TensorList(w.Context, Tensor.Allocate(DType.Fp32, 1)))
      using (var grads = new TensorList(w.Context, Tensor.Allocate(DType.Fp32, 1)))
      using (var second = new Optimizer(w.Context, World.Sgd(), parameters, grads))
      {
        var loss = new float[1];
        w.Scaler.Scale(loss, loss);
        w.Scaler.StepAndUpdate(w.Optimizer);
        var e = Assert.Throws<BadStateException>(() => w.Scaler.Step(second));
        Assert.That(e.Argument, Is.EqualTo("optimizer"));
        Assert.That(e.Message, Is.StringContaining("step all optimizers of a backward pass before update"));
        w.Scaler.Scale(loss, loss);
        w.Scaler.Step(w.Optimizer);
        w.Scaler.Step(second);
        w.Scaler.Update();
      }
    }

    [Test]
    public void UnscaleAndClip()
    {
      using (var w = new World(4))
      {
        w.Fill(1);
        w.Scaler.Unscale(w.Grads);
        Assert.That(w.Gradients[0], Is.EqualTo(1f));
        w.Scaler.ClipGradNorm(w.Grads, 1);
        Assert.That(w.Gradients[2], Is.EqualTo(0.5f).Within(1e-6));
        w.Scaler.ClipGradValue(w.Grads, 0.25);
        Assert.That(w.Gradients[2], Is.EqualTo(0.25f));
        Assert.That(w.Scaler.GetReport(w.Grads).GradNorm, Is.EqualTo(2.0).Within(1e-6));
        Assert.That(w.Scaler.ShouldStep(w.Grads), Is.True);
        w.Scaler.Update();
        w.Fill(3);
        w.Scaler.CheckGrads(w.Grads);
        w.Scaler.ClipGradNorm(w.Grads, 3, Norm.Inf);
        w.Scaler.Discard(w.Grads);
        w.Scaler.CheckRange(w.Grads, 0, 1);
        w.Scaler.Discard();
        Assert.That(w.Gradients[0], Is.EqualTo(3072f));
        Assert.That(w.Scaler.StepSlice(w.Optimizer, 1), Is.GreaterThan(0));
        Assert.That(w.Scaler.StepSlice(w.Optimizer, 1 << 20), Is.EqualTo(0));
        Assert.That(w.Context.HostBytes, Is.GreaterThan(0));
        Assert.That(w.Context.DeviceBytes, Is.EqualTo(0));
      }
    }

    [Test]
    public void SpansAreScaledAndConverted()
    {
      using (var w = new World(1))
      {
        float[] loss = { 0.5f, 0.25f };
        var half = new ushort[2];
        w.Scaler.Scale(loss, half, DType.Fp16);
        Assert.That(half, Is.EqualTo(new ushort[] { 0x6000, 0x5c00 })); // 512 and 256 as binary16
        w.Scaler.Scale(loss, loss);
        Assert.That(loss[1], Is.EqualTo(256f));
        var back = new float[1];
        Ops.Cast(w.Context, new ReadOnlySpan<ushort>(half, 1, 1), DType.Fp16, back);
        Assert.That(back[0], Is.EqualTo(256f));
        Assert.That(Ops.UnscaleCheck(w.Context, loss, 0.5f), Is.False);
        Assert.That(loss[1], Is.EqualTo(128f));
        loss[0] = float.PositiveInfinity;
        Assert.That(Ops.UnscaleCheck(w.Context, loss, 0.5f), Is.True);
        World.Invalid(() => w.Scaler.Scale(loss, half, DType.Fp32));
        w.Scaler.Scale(new float[0], new ushort[0], DType.Bf16);
      }
    }

    [Test]
    public void StatesTravelAsBytes()
    {
      using (var a = new World(3))
      using (var b = new World(3))
      {
        a.Fill(float.PositiveInfinity);
        a.Scaler.StepAndUpdate(a.Optimizer);
        a.Scaler.GrowthFactor = 4;
        a.Scaler.BackoffFactor = 0.25;
        a.Scaler.GrowthInterval = 7;
        b.Scaler.SetState(ScalerState.FromBytes(a.Scaler.GetState().ToBytes()));
        Assert.That(b.Scaler.GetScale(), Is.EqualTo(512f));
        Assert.That(b.Scaler.GrowthFactor, Is.EqualTo(4.0));
        Assert.That(b.Scaler.BackoffFactor, Is.EqualTo(0.25));
        Assert.That(b.Scaler.GrowthInterval, Is.EqualTo(7));
        Assert.That(b.Scaler.GetState().Skipped, Is.EqualTo(1));
        World.Invalid(() => ScalerState.FromBytes(new byte[3]));
        World.Invalid(() => ScalerState.FromBytes(new byte[88]));
        byte[] older = a.Scaler.GetState().ToBytes();
        Array.Resize(ref older, 64);  // without the last two fields
        World.Invalid(() => ScalerState.FromBytes(older));
        BitConverter.GetBytes(64).CopyTo(older, 0);
        b.Scaler.SetState(ScalerState.FromBytes(older));
        Assert.That(b.Scaler.GetState().Updates, Is.EqualTo(1));
        Assert.That(b.Scaler.GetState().Skipped, Is.EqualTo(0));
        World.Invalid(() => b.Scaler.SetState(new ScalerState()));
        Assert.That(b.Scaler.GetScale(), Is.EqualTo(512f));
      }
    }

    [Test]
    public void Presets()
    {
      foreach (Preset preset in Enum.GetValues(typeof(Preset)))
      {
        using (Context context = Context.Cpu(1))
        using (var scaler = new GradScaler(context, new ScalerOptions(preset)))
        {
          ScalerOptions options = scaler.GetOptions();
          options.GrowthInterval = 3;
          scaler.SetOptions(options);
          Assert.That(scaler.GrowthInterval, Is.EqualTo(3));
        }
      }
      Assert.That(new ScalerOptions(Preset.ApexHysteresis).HysteresisRefill, Is.EqualTo(HysteresisRefill.OnCleanStep));
      Assert.That(new ScalerOptions(Preset.Flax).GrowthTiming, Is.EqualTo(GrowthTiming.OneLater));
      using (World on = new World(1), off = new World(1, new ScalerOptions { Enabled = false }))
      {
        Assert.That(on.Scaler.IsEnabled, Is.True);
        Assert.That(off.Scaler.IsEnabled, Is.False);
      }
    }

    /// <summary>Each option set to another value changes that option alone, in the scaler too.</summary>
    [Test]
    public void OptionsReachTheLibrary()
    {
      PropertyInfo[] properties = typeof(ScalerOptions).GetProperties();
      Func<ScalerOptions, object[]> values = o => properties.Select(p => p.GetValue(o, null)).ToArray();
      var options = new ScalerOptions { MaxScale = 1 << 20 };
      for (int i = 0; i < properties.Length; i++)
      {
        object[] expected = values(options);
        expected[i] = expected[i] is bool ? (object)!(bool)expected[i]
                      : expected[i] is Enum ? Enum.GetValues(expected[i].GetType()).GetValue(1)
                      : Convert.ChangeType(Convert.ToDouble(expected[i]) + 1, expected[i].GetType());
        properties[i].SetValue(options, expected[i], null);
        Assert.That(values(options), Is.EqualTo(expected), properties[i].Name);
      }
      options.Enabled = true;
      options.BackoffFactor = 0.25;
      options.OverflowTolerance = 0.5;
      using (var w = new World(1, options))
      {
        Assert.That(values(w.Scaler.GetOptions()), Is.EqualTo(values(options)));
      }
    }

    [Test]
    public void GroupsAndLearningRates()
    {
      float[] p = new float[2], g = { 1, 1 };
      Tensor pt = Tensor.Of(p), gt = Tensor.Of(g);
      using (Context context = Context.Cpu(1))
      using (var parameters = new TensorList(context, pt.Slice(0, 1), pt.Slice(1, 1)))
      using (var grads = new TensorList(context, gt.Slice(0, 1), gt.Slice(1, 1)))
      using (var optimizer = new Optimizer(context, World.Sgd(), parameters, grads))
      {
        int group = optimizer.AddGroup(1, 1, World.Sgd(10));
        Assert.That(group, Is.EqualTo(1));
        Assert.That(optimizer.GroupCount, Is.EqualTo(2));
        optimizer.Step();
        Assert.That(p, Is.EqualTo(new[] { -1f, -10f }));
        optimizer.SetLr(1, 2);
        Assert.That(optimizer.GetOptions(1).Lr, Is.EqualTo(2.0));
        optimizer.SetDeviceLr(0, DeviceScalar.Of(new[] { 5f }));
        optimizer.Step();
        Assert.That(p, Is.EqualTo(new[] { -6f, -12f }));
        grads.SetDeviceFactor(DeviceScalar.Of(new[] { 0.5f }));
        optimizer.Step();
        Assert.That(p, Is.EqualTo(new[] { -8.5f, -13f }));
        grads.SetDeviceFactor(null);
        World.Invalid(() => grads.SetDeviceFactor(DeviceScalar.Of(new[] { 1 })));
        World.Invalid(() => grads.SetDeviceNorms(DeviceScalar.Of(new[] { 0.0 })));
        var norms = new double[2];
        grads.SetDeviceNorms(DeviceScalar.Of(norms));
        grads.SetDeviceNorms(null);
        optimizer.ZeroGrads();
        Assert.That(g[1], Is.EqualTo(0f));
        optimizer.SetSteps(40, 2);
        Assert.That(optimizer.GetStepsApplied(), Is.EqualTo(40));
        Assert.That(optimizer.GetStepsSkipped(), Is.EqualTo(2));
        grads.SetPresent(new[] { false, true });
        optimizer.Step();
        Assert.That(p[0], Is.EqualTo(-8.5f));
        Assert.That(optimizer.GetTensorSteps(), Is.EqualTo(new[] { 40L, 41L }));
        World.Invalid(() => grads.SetPresent(new[] { true }));
        optimizer.SetTensorSteps(new[] { 5L, 3L });
        Assert.That(optimizer.GetTensorSteps(), Is.EqualTo(new[] { 5L, 3L }));
        optimizer.SetOffsets(new[] { 64L, 32L });
        World.Invalid(() => optimizer.SetOffsets(new[] { 64L, 33L }));
        Assert.That(optimizer.Evaluating, Is.EqualTo(0));
        Assert.That(optimizer.GetStepsApplied(), Is.EqualTo(5));
      }
    }

    [Test]
    public void ModelCopyIsWrittenInTheSamePass()
    {
      Tensor g = Tensor.Allocate(DType.Fp16, 3);
      var half = new ushort[3];
      Span<ushort> values = g.Span<ushort>();
      values[2] = 0x3c00; // 1 as binary16
      using (Context context = Context.Cpu(1))
      using (var parameters = new TensorList(context, Tensor.Allocate(DType.Fp32, 3)))
      using (var grads = new TensorList(context, g))
      using (var copy = new TensorList(context, Tensor.Of(half, DType.Fp16)))
      using (var optimizer = new Optimizer(context, World.Sgd(), parameters, grads, copy))
      {
        optimizer.StepScaled(DeviceScalar.Of(new[] { 0.5f }), null);
        Assert.That(half[2], Is.EqualTo(0xb800)); // -0.5
      }
    }

    [Test]
    public void Diagnoses()
    {
      var t = Tensor.Of(new[] { 0f, 4f, float.NaN, float.NegativeInfinity }).Named("decoder.weight");
      using (Context context = Context.Cpu(1))
      using (var list = new TensorList(context, t))
      {
        Diagnosis found = list.Diagnose();
        Assert.That(found.Count, Is.EqualTo(1));
        Assert.That(found[0].InfCount, Is.EqualTo(1));
        Assert.That(found[0].NanCount, Is.EqualTo(1));
        Assert.That(found[0].FirstNonfinite, Is.EqualTo(2));
        Assert.That(found[0].Amax, Is.EqualTo(4.0));
        Assert.That(found.Histogram(0)[2 - Diagnosis.ExponentMin], Is.EqualTo(1));
        Assert.That(found.Histogram(0).Sum(), Is.EqualTo(1));
        Assert.That(found.Recommend(1, DType.Fp16).Scale, Is.EqualTo(2048f)); // 4 * 2048 = 2^13
        Assert.That(list[0].Name, Is.EqualTo("decoder.weight"));
        using (var other = new TensorList(context, t.Named("häd\uD83D\uDE00")))
          Assert.That(other[0].Name, Is.EqualTo("häd\uD83D\uDE00"));
      }
    }

    [Test]
    public void Operations()
    {
      using (Context context = Context.Cpu(1))
      {
        float[] x = { 1, 2, 3, 4 }, y = new float[4], found = new float[1], factor = { 0.5f }, scale = { 64 };
        Tensor a = Tensor.Of(x), b = Tensor.Of(y);
        Ops.Cast(context, a, b);
        Ops.Axpby(context, 2, new[] { a }, 10, new[] { b });
        Assert.That(y[3], Is.EqualTo(48f));
        Ops.UnscaleCheck(context, new[] { b }, DeviceScalar.Of(found), DeviceScalar.Of(factor));
        Assert.That(y[3], Is.EqualTo(24f));
        Ops.Scale(context, new[] { b }, new[] { a }, DeviceScalar.Of(factor));
        Assert.That(x[3], Is.EqualTo(12f));
        double[] total = new double[1], each = new double[1];
        Ops.Norm(context, new[] { a }, Norm.Inf, DeviceScalar.Of(total), DeviceScalar.Of(each));
        Assert.That(total[0], Is.EqualTo(12.0));
        Assert.That(each[0], Is.EqualTo(12.0));
        Ops.UpdateScale(context, DeviceScalar.Of(scale), DeviceScalar.Of(new int[1]), DeviceScalar.Of(found), 2, 0.5, 1);
        Assert.That(scale[0], Is.EqualTo(128f));
      }
    }

    [Test]
    public void DevicesAndWords()
    {
      Assert.That(Context.DeviceCount(DeviceType.Cpu), Is.EqualTo(1));
      Assert.That(Context.GetDeviceInfo(DeviceType.Cpu, 0).Name, Is.Not.Empty);
      Assert.Throws<UnavailableException>(() => Context.Cuda(99, useCurrentContext: true));
      Assert.That(Context.BuildInfo, Is.StringContaining(Context.Version));
      Assert.That(typeof(Context).Assembly.GetName().Version.ToString(3), Is.EqualTo(Context.Version));
      using (var w = new World(1))
      {
        Assert.That(w.Context.NumThreads, Is.EqualTo(1));
        Assert.That(w.Context.CpuTarget, Is.Not.EqualTo(CpuTarget.Best));
        w.Scaler.CheckGrads(w.Grads);
        DeviceState state = w.Scaler.GetDeviceState(w.Grads);
        Assert.That(state.FoundInf, Is.Not.EqualTo(IntPtr.Zero));
        Assert.That(w.Scaler.GetDeviceState().FoundInf, Is.EqualTo(IntPtr.Zero));
        var scale = new float[1];
        Ops.Cast(w.Context, Tensor.At(state.Scale, 1, DType.Fp32), Tensor.Of(scale));
        Assert.That(scale[0], Is.EqualTo(1024f));
      }
    }
  }
}
