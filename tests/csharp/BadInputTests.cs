// SPDX-License-Identifier: Apache-2.0
// Wrong arguments that only C# has, such as unfit arrays and unknown enumerators, are refused with the right exception,
// whose message names the mistake. tests/capi/bad_input* have what the library refuses.
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
      var e = Assert.Throws<InvalidArgumentException>(call, part);
      Assert.That(e.Status, Is.EqualTo(Status.InvalidArgument));
      Assert.That(e.Message, Is.StringContaining(part));
    }

    private static void Null(string name, TestDelegate call) =>
        Assert.That(Assert.Throws<ArgumentNullException>(call, name).ParamName, Is.EqualTo(name));

    [Test]
    public void Tensors()
    {
      Null("array", () => Tensor.Of((float[])null));
      Null("array", () => DeviceScalar.Of((int[])null));
      Null("owner", () => Tensor.At(new IntPtr(4096), 1, DType.Fp32, null));
      Refused("no multiple of the 4", () => Tensor.Of(new byte[7], DType.Fp32));
      Refused("dtype 17", () => Tensor.Of(new byte[8], (DType)17));
      Refused("dtype 0", () => Tensor.At(IntPtr.Zero, 0, 0));
      Refused("outside of the 4", () => Tensor.Allocate(DType.Fp16, 4).Slice(3, 2));
      Refused("outside of the 4", () => Tensor.Allocate(DType.Fp16, 4).Slice(1, long.MaxValue));
      Refused("count is -1", () => Tensor.Allocate(DType.Fp16, -1));
      Refused("of Fp16", () => Tensor.Allocate(DType.Fp16, 1).Span<float>());
      Refused("not made of an array", () => Tensor.At(IntPtr.Zero, 0, DType.Fp32).Span<float>());
    }

    private static void Unfit<T>(T[] array, DType dtype) where T : struct =>
        Refused(typeof(T).Name + "[], which does not hold " + dtype, () => Tensor.Of(array, dtype));

    /// <summary>The bits of one type are no numbers of another: what does not hold the dtype is refused.</summary>
    [Test]
    public void ArraysOfAnotherType()
    {
      Unfit(new float[4], DType.Fp16);
      Unfit(new float[4], DType.Fp64);
      Unfit(new double[2], DType.Fp32);
      Unfit(new int[2], DType.Fp32);
      Unfit(new char[4], DType.Fp16);
      Unfit(new ushort[4], DType.Fp32);
      Unfit(new decimal[1], DType.Fp32);
      Refused("no Int32", () => Tensor.Allocate(DType.Fp32, 1).Span<int>());
      Refused("no Char", () => Tensor.Allocate(DType.Fp16, 1).Span<char>());

      Assert.That(Tensor.Of(new float[4], DType.Fp32).Count, Is.EqualTo(4));
      Assert.That(Tensor.Of(new double[4], DType.Fp64).Count, Is.EqualTo(4));
      foreach (DType dtype in new[] { DType.Fp16, DType.Bf16 })
      {
        Assert.That(Tensor.Of(new ushort[4], dtype).Count, Is.EqualTo(4));
        Assert.That(Tensor.Of(new short[4], dtype).Count, Is.EqualTo(4));
        Assert.That(Tensor.Of(new byte[4], dtype).Count, Is.EqualTo(2));
      }
      Assert.That(Tensor.Of(new byte[16], DType.Fp64).Count, Is.EqualTo(2));
    }

    [Test]
    public void ErrorsNameTheArgument()
    {
      using (var w = new World(4))
      {
        var option = Assert.Throws<InvalidArgumentException>(
            () => new GradScaler(w.Context, new ScalerOptions { InitScale = -1 }));
        Assert.That(option.Argument, Is.EqualTo("options"));
        Assert.That(option.Field, Is.EqualTo("init_scale"));
        Assert.That(option.Index, Is.EqualTo(-1));
        Assert.That(option.Tensor, Is.EqualTo(-1));
        var bad = new[] { Tensor.Allocate(DType.Fp32, 4), Tensor.At(new IntPtr(1), 4, DType.Fp32) };
        var tensor = Assert.Throws<InvalidArgumentException>(() => Ops.Cast(w.Context, bad, bad));
        Assert.That(tensor.Argument, Is.EqualTo("src"));
        Assert.That(tensor.Field, Is.EqualTo("data"));
        Assert.That(tensor.Tensor, Is.EqualTo(1));
        Assert.That(Assert.Throws<BadStateException>(() => w.Scaler.Update()).Argument, Is.Null);
      }
    }

    [Test]
    public void Lists()
    {
      using (var w = new World(4))
      {
        Tensor t = Tensor.Allocate(DType.Fp32, 4);
        Null("tensors", () => new TensorList(w.Context, (Tensor[])null));
        Null("tensors[1]", () => new TensorList(w.Context, t, null));
        Refused("zero character", () => new TensorList(w.Context, t.Named("a\0b")));
        Refused("index", () => w.Grads.Diagnose()[1].ToString());
        Refused("index", () => w.Grads[1].ToString());
        Refused("index", () => w.Grads[-1].ToString());
        Refused("count", () => w.Grads.SetTensors(new Tensor[0]));
        Refused("count", () => w.Grads.SetTensors(new[] { t, t }));
        Refused("tensors[0] has count 3", () => w.Grads.SetTensors(new[] { t.Slice(0, 3) }));
        Refused("tensors[0] has count 4 and dtype Fp64",
                () => w.Grads.SetTensors(new[] { Tensor.Allocate(DType.Fp64, 4) }));
      }
    }

    [Test]
    public void Scalers()
    {
      using (var w = new World(4))
      {
        Refused("floor_action", () => new GradScaler(w.Context, new ScalerOptions { FloorAction = (FloorAction)9 }));
        Refused("preset", () => new ScalerOptions((Preset)99));
        Null("context", () => new GradScaler(null));
        Null("grads", () => w.Scaler.CheckGrads(null));
        Null("optimizer", () => w.Scaler.Step(null));
        Null("state", () => w.Scaler.SetState(null));
        Refused("norm_type", () => w.Scaler.ClipGradNorm(w.Grads, 1, (Norm)7));
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
        DeviceScalar real = DeviceScalar.Of(new float[1]), whole = DeviceScalar.Of(new int[1]);
        Null("parameters", () => new Optimizer(w.Context, adamw, null, w.Grads));
        Null("state[0]", () => new Optimizer(w.Context, adamw, w.Params, w.Grads, null, (TensorList)null));
        Refused("kind", () => new OptimizerOptions((OptimizerKind)99));
        Refused("5 lists", () => new Optimizer(w.Context, adamw, w.Params, w.Grads, null, shorter, shorter, shorter,
                                               shorter, shorter));
        Refused("slot", () => w.Optimizer.StateTensor(9, 0));
        Refused("different numbers", () => Ops.Cast(w.Context, new[] { t }, new Tensor[0]));
        Refused("lr is a device scalar of kind Int", () => w.Optimizer.SetDeviceLr(0, whole));
        Refused("buffer", () => w.Optimizer.Save(IntPtr.Zero, w.Optimizer.SaveSize));
        Refused("growthTracker is a device scalar of kind Float",
                () => Ops.UpdateScale(w.Context, real, real, real, 2, 0.5, 1));
        Refused("each has room for 1 elements, needs 2",
                () => Ops.Norm(w.Context, new[] { t, t }, Norm.L2, DeviceScalar.Of(new double[1]), DeviceScalar.Of(new double[1])));
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

    [Test]
    public void SpikesErrorCarriesTheReport()
    {
      var options = new ScalerOptions(Preset.Check) { SkipNorm = 10, SpikePatience = 2, SpikeAction = SpikeAction.Error };
      using (var w = new World(1, options))
      {
        w.Fill(20);
        w.Scaler.StepAndUpdate(w.Optimizer);
        Assert.That(w.Scaler.GetReport().Spike, Is.True);
        Assert.That(w.Scaler.GetReport().SpikesPersist, Is.False);
        w.Scaler.StepAndUpdate(w.Optimizer);
        var e = Assert.Throws<SpikesException>(() => w.Scaler.GetReport());
        Assert.That(e.Status, Is.EqualTo(Status.Spikes));
        Assert.That(e.Message, Is.StringContaining("the gradient norm 20 is above its limit"));
        Assert.That(e.Report.SpikesPersist, Is.True);
        Assert.That(e.Report.ConsecutiveSkips, Is.EqualTo(2));
        ReportException ofList = Assert.Throws<SpikesException>(() => w.Scaler.GetReport(w.Grads));
        Assert.That(ofList.Report.GradNorm, Is.EqualTo(20.0));
        var buffer = new ReportBuffer();
        w.Scaler.ReadReportAsync(w.Grads, buffer);
        Assert.That(buffer.Get().SpikesPersist, Is.True);
        w.Fill(1);
        w.Scaler.StepAndUpdate(w.Optimizer);
        Assert.That(w.Scaler.GetReport().Spike, Is.False);
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
        Ops.Cast(w.Context, new Tensor[0], new Tensor[0]);
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
