// SPDX-License-Identifier: Apache-2.0
// Every wrong argument is refused with an exception of the right type, whose message says what is wrong.
using System;
using System.Linq;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class BadInputTests
  {
    private static void Refused(string part, TestDelegate call)
    {
      Refused<InvalidArgumentException>(Status.InvalidArgument, part, call);
    }

    private static void Refused<T>(Status status, string part, TestDelegate call) where T : GradScalerException
    {
      var e = Assert.Throws<T>(call, part);
      Assert.That(e.Status, Is.EqualTo(status));
      Assert.That(e.Message, Is.StringContaining(part));
    }

    private static void Null(string name, TestDelegate call)
    {
      Assert.That(Assert.Throws<ArgumentNullException>(call, name).ParamName, Is.EqualTo(name));
    }

    [Test]
    public void Tensors()
    {
      Null("array", () => Tensor.Of((float[])null));
      Null("array", () => Word.Of((int[])null));
      Refused("no multiple of the 4", () => Tensor.Of(new byte[7], DType.Fp32));
      Refused("dtype 17", () => Tensor.Of(new byte[8], (DType)17));
      Refused("dtype 0", () => Tensor.At(IntPtr.Zero, 0, 0));
      Refused("outside of the 4", () => Tensor.Allocate(DType.Fp16, 4).Slice(3, 2));
      Refused("outside of the 4", () => Tensor.Allocate(DType.Fp16, 4).Slice(1, long.MaxValue));
      Refused("count is -1", () => Tensor.Allocate(DType.Fp16, -1));
      Refused("of Fp16", () => Tensor.Allocate(DType.Fp16, 1).Span<float>());
      Refused("not made of an array", () => Tensor.At(IntPtr.Zero, 0, DType.Fp32).Span<float>());
    }

    [Test]
    public void Lists()
    {
      using (var w = new World(4))
      {
        Tensor t = Tensor.Allocate(DType.Fp32, 4);
        Null("context", () => new TensorList(null, t));
        Null("tensors", () => new TensorList(w.Context, (Tensor[])null));
        Null("tensors[1]", () => new TensorList(w.Context, t, null));
        Refused("tensors[0]", () => new TensorList(w.Context, Tensor.At(IntPtr.Zero, 4, DType.Fp32)));
        Refused("tensors[0]", () => new TensorList(w.Context, Tensor.At(t.Address, -4, DType.Fp32)));
        Refused("tensors[0]", () => new TensorList(w.Context, Tensor.At(t.Address + 2, 2, DType.Fp32)));
        Refused("tensors[1]", () => new TensorList(w.Context, t, t));
        Refused("zero character", () => new TensorList(w.Context, t.Named("a\0b")));
        Refused("index", () => w.Grads[1].ToString());
        Refused("index", () => w.Grads[-1].ToString());
        Refused("index", () => w.Grads.Diagnose()[1].ToString());
        Refused("tensors[0] has count 3", () => w.Grads.SetTensors(new[] { t.Slice(0, 3) }));
        Refused("tensors[0] has count 4 and dtype Fp64",
                () => w.Grads.SetTensors(new[] { Tensor.Allocate(DType.Fp64, 4) }));
        Refused("count", () => w.Grads.SetTensors(new[] { t, Tensor.Allocate(DType.Fp32, 4) }));
      }
    }

    [Test]
    public void Scalers()
    {
      using (var w = new World(4))
      {
        Null("context", () => new GradScaler(null));
        Refused("growth_factor", () => new GradScaler(w.Context, new ScalerOptions { GrowthFactor = 1 }));
        Refused("backoff_factor", () => new GradScaler(w.Context, new ScalerOptions { BackoffFactor = double.NaN }));
        Refused("init_scale", () => new GradScaler(w.Context, new ScalerOptions { InitScale = 0 }));
        Refused("floor_action", () => new GradScaler(w.Context, new ScalerOptions { FloorAction = (FloorAction)9 }));
        Refused("preset", () => new ScalerOptions((Preset)99));
        Refused("growth_interval", () => w.Scaler.GrowthInterval = 0);
        Null("grads", () => w.Scaler.Unscale(null));
        Null("optimizer", () => w.Scaler.Step(null));
        Null("state", () => w.Scaler.SetState(null));
        Refused("norm_type", () => w.Scaler.ClipGradNorm(w.Grads, 1, (Norm)7));
        Refused("max_norm", () => w.Scaler.ClipGradNorm(w.Grads, -1));
        Refused("clip_value", () => w.Scaler.ClipGradValue(w.Grads, double.NaN));
        Refused("scale", () => w.Scaler.SetScale(float.PositiveInfinity));
        Refused<BadStateException>(Status.BadState, "update", () => w.Scaler.Update());
        w.Scaler.Unscale(w.Grads);
        Refused<BadStateException>(Status.BadState, "unscale", () => w.Scaler.Unscale(w.Grads));
        Refused<UnavailableException>(Status.Unavailable, "device", () => Context.GetDeviceInfo(DeviceType.Cpu, 3));
        Refused("thread", () => Context.Cpu(-1));
      }
    }

    [Test]
    public void OptimizersAndOperations()
    {
      using (var w = new World(4))
      {
        Tensor t = Tensor.Allocate(DType.Fp32, 3);
        var shorter = new TensorList(w.Context, t);
        var adamw = new OptimizerOptions(OptimizerKind.AdamW);
        Word real = Word.Of(new float[1]), whole = Word.Of(new int[1]);
        Null("parameters", () => new Optimizer(w.Context, adamw, null, w.Grads));
        Null("state[0]", () => new Optimizer(w.Context, adamw, w.Params, w.Grads, null, (TensorList)null));
        Refused("grads[0]", () => new Optimizer(w.Context, adamw, w.Params, shorter));
        Refused("lr", () => new Optimizer(w.Context, new OptimizerOptions(OptimizerKind.Adam) { Lr = -1 }, w.Params,
                                          w.Grads));
        Refused("kind", () => new OptimizerOptions((OptimizerKind)99));
        Refused("4 lists", () => new Optimizer(w.Context, adamw, w.Params, w.Grads, null, shorter, shorter, shorter,
                                               shorter));
        Refused("group", () => w.Optimizer.SetLr(7, 1));
        Refused("lr is a word of kind Int", () => w.Optimizer.SetLrWord(0, whole));
        Refused("slot", () => w.Optimizer.StateTensor(9, 0));
        Refused("size", () => w.Optimizer.Save(new byte[3]));
        Refused("buffer", () => w.Optimizer.Save(IntPtr.Zero, w.Optimizer.SaveSize));
        Refused("different numbers", () => Ops.Cast(w.Context, new[] { t }, new Tensor[0]));
        Refused("growthTracker is a word of kind Float",
                () => Ops.UpdateScale(w.Context, real, real, real, 2, 0.5, 1));
        Refused("found_inf", () => Ops.UnscaleCheck(w.Context, new[] { t }, null, real));
        Refused("each has room for 1 elements, needs 2",
                () => Ops.Norm(w.Context, new[] { t, t }, Norm.L2, Word.Of(new double[1]), Word.Of(new double[1])));
      }
    }

    [Test]
    public void FloorErrorCarriesTheReport()
    {
      var options = new ScalerOptions { InitScale = 4, MinScale = 4, FloorAction = FloorAction.Error };
      using (var w = new World(2, options))
      {
        w.Fill(float.NaN);
        w.Scaler.StepAndUpdate(w.Optimizer);
        var e = Assert.Throws<ScaleFloorException>(() => w.Scaler.GetReport());
        Assert.That(e.Status, Is.EqualTo(Status.ScaleFloor));
        Assert.That(e.Report.AtFloor, Is.True);
        Assert.That(e.Report.Scale, Is.EqualTo(4f));
      }
    }

    /// <summary>A count that fits no int reaches the library as it is, and so does an address.</summary>
    [Test]
    public void LongsAreNotCut()
    {
      long count = (1L << 33) + 5;
      var address = new IntPtr(1L << 40);
      using (Context context = Context.Cpu(1))
      using (var list = new TensorList(context, Tensor.At(address, count, DType.Fp32)))
      {
        Assert.That(list[0].Count, Is.EqualTo(count));
        Assert.That(list[0].Address, Is.EqualTo(address));
      }
    }

    [Test]
    public void EmptyArraysAreFine()
    {
      using (var w = new World(0))
      {
        w.Scaler.StepAndUpdate(w.Optimizer);
        Assert.That(w.Grads[0].Count, Is.EqualTo(0));
        Ops.Zero(w.Context, new Tensor[0]);
        using (var none = new TensorList(w.Context))
        using (var nowhere = new TensorList(w.Context, Tensor.At(IntPtr.Zero, 0, DType.Fp16)))
        {
          Assert.That(none.Count, Is.EqualTo(0));
          Assert.That(nowhere.Count, Is.EqualTo(1));
        }
      }
    }

    [Test]
    public void PublicTypesHideWhatSwigMade()
    {
      Type[] types = typeof(GradScaler).Assembly.GetTypes();
      Assert.That(types.Where(t => t.Name.StartsWith("SWIGTYPE")), Is.Empty);
      Type[] shown = types.Where(t => t.IsPublic).ToArray();
      Assert.That(shown, Has.Member(typeof(GradScaler)));
      foreach (Type type in shown)
      {
        Assert.That(type.Name, Is.Not.StringStarting("Native"));
        foreach (var method in type.GetMethods())
        {
          Assert.That(method.ToString(), Is.Not.StringContaining("Native"));
          if (method.Name == "get_Status")
          {
            Assert.That(method.ReturnType, Is.EqualTo(typeof(Status)));
          }
        }
      }
    }
  }
}
