// SPDX-License-Identifier: Apache-2.0
// What a scenario file acts on: one scaler, and for each list of gradients its parameters and an SGD optimizer with
// learning rate 1. The format is described in tests/conformance/README.md.
using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  using static Conformance;
  using Object = Dictionary<string, object>;

  internal sealed class ScenarioWorld : IDisposable
  {
    private readonly Context context = Context.Cpu(1);
    private readonly Dictionary<string, Lists> lists = new Dictionary<string, Lists>();
    private readonly List<string> names = new List<string>();
    private readonly Dictionary<string, ScalerState> saved = new Dictionary<string, ScalerState>();
    private readonly Object options;
    private GradScaler scaler;
    private bool apply;
    private bool floorError;

    private sealed class Lists
    {
      internal readonly Tensor[] Gradients;
      internal readonly Tensor[] Weights;
      internal readonly TensorList Grads;
      internal readonly Optimizer Optimizer;

      internal Lists(Context context, DType dtype, IEnumerable<int> counts)
      {
        Gradients = counts.Select(c => Tensor.Allocate(dtype, c)).ToArray();
        Weights = counts.Select(c => Tensor.Allocate(DType.Fp32, c)).ToArray();
        Grads = new TensorList(context, Gradients);
        Optimizer = new Optimizer(context, new OptimizerOptions(OptimizerKind.Sgd) { Lr = 1 },
                                  new TensorList(context, Weights), Grads);
      }
    }

    internal ScenarioWorld(Object file)
    {
      options = (Object)file["scaler"];
      scaler = new GradScaler(context, Read(options, new ScalerOptions()));
      if (!file.ContainsKey("lists"))
      {
        Add("model", DType.Fp32, new[] { 4 });
        return;
      }
      foreach (KeyValuePair<string, object> pair in (Object)file["lists"])
      {
        var description = (Object)pair.Value;
        Add(pair.Key, DeviceScalar<DType>(description["dtype"]), ((object[])description["counts"]).Select(Integer).ToArray());
      }
    }

    private void Add(string name, DType dtype, int[] counts)
    {
      names.Add(name);
      lists.Add(name, new Lists(context, dtype, counts));
    }

    internal void Act(Object e, string where)
    {
      Status? status = null;
      try
      {
        Perform(e);
      }
      catch (GradScalerException error)
      {
        status = error.Status;
      }
      string expected = e.ContainsKey("status") ? (string)e["status"] : "ok";
      Assert.That(status, Is.EqualTo(expected == "ok" ? (Status?)null : DeviceScalar<Status>(expected)), where);
      if (e.ContainsKey("expect"))
      {
        foreach (KeyValuePair<string, object> pair in (Object)e["expect"])
        {
          Judge(pair.Key, pair.Value, where + ": " + pair.Key);
        }
      }
    }

    private Lists ListOf(Object e)
    {
      if (!e.ContainsKey("list") && names.Count != 1)
      {
        throw new ArgumentException("missing list");
      }
      return lists[e.ContainsKey("list") ? (string)e["list"] : names[0]];
    }

    private void Perform(Object e)
    {
      switch ((string)e["do"])
      {
        case "update": scaler.Update(); break;
        case "set_scale": scaler.SetScale((float)Number(e["scale"])); break;
        case "set_options": scaler.SetOptions(Read((Object)e["options"], scaler.GetOptions())); break;
        case "save": saved[(string)e["as"]] = scaler.GetState(); break;
        case "restore": scaler.SetState(saved[(string)e["from"]]); break;
        case "new_scaler":
          scaler.Dispose();
          scaler = new GradScaler(context, Read(e.ContainsKey("scaler") ? (Object)e["scaler"] : options,
                                                new ScalerOptions()));
          break;
        case "run": Run((string)e["pattern"], (object[])e["scales"]); break;
        case "discard": scaler.Discard(e.ContainsKey("list") ? ListOf(e).Grads : null); break;
        default: PerformOn(ListOf(e), e); break;
      }
    }

    private void PerformOn(Lists target, Object e)
    {
      switch ((string)e["do"])
      {
        case "fill":
          Fill(target, e.ContainsKey("value") ? Number(e["value"]) : Number(e["true_value"]) * scaler.GetScale());
          break;
        case "plant":
          Set(target.Gradients[Integer(e["tensor"])].Slice(Integer(e["element"]), 1), Number(e["value"]));
          break;
        case "unscale": scaler.Unscale(target.Grads); break;
        case "check": scaler.CheckGrads(target.Grads); break;
        case "check_range": scaler.CheckRange(target.Grads, Integer(e["first"]), Integer(e["count"])); break;
        case "clip_norm": scaler.ClipGradNorm(target.Grads, Number(e["max_norm"]), DeviceScalar<Norm>(e["norm"])); break;
        case "clip_value": scaler.ClipGradValue(target.Grads, Number(e["value"])); break;
        case "step": scaler.Step(target.Optimizer); break;
        case "step_and_update": scaler.StepAndUpdate(target.Optimizer); break;
        case "should_step": apply = scaler.ShouldStep(target.Grads); break;
        default: throw new ArgumentException("unknown event " + e["do"]);
      }
    }

    private void Fill(Lists target, double value)
    {
      foreach (Tensor tensor in target.Gradients)
      {
        Set(tensor, value);
      }
    }

    private void Set(Tensor tensor, double value)
    {
      Ops.Cast(context, Tensor.Of(Enumerable.Repeat(value, (int)tensor.Count).ToArray()), tensor);
    }

    private void Run(string pattern, object[] scales)
    {
      Assert.That(scales.Length, Is.EqualTo(pattern.Length));
      for (int i = 0; i < pattern.Length; i++)
      {
        foreach (string name in names)
        {
          Fill(lists[name], scaler.GetScale());
        }
        if (pattern[i] == 'x')
        {
          Set(lists[names[0]].Gradients[0].Slice(0, 1), double.PositiveInfinity);
        }
        foreach (string name in names)
        {
          scaler.Step(lists[name].Optimizer);
        }
        scaler.Update();
        Assert.That(scaler.GetScale(), Is.EqualTo((float)Number(scales[i])), "letter " + i + " of " + pattern);
      }
    }

    /// <summary>The report, whether or not it comes with an exception.</summary>
    private Report ReportOf(TensorList grads = null)
    {
      try
      {
        floorError = false;
        return scaler.GetReport(grads);
      }
      catch (ScaleFloorException e)
      {
        floorError = true;
        return e.Report;
      }
    }

    private void Judge(string key, object value, string where)
    {
      switch (key)
      {
        case "scale": Assert.That(scaler.GetScale(), Is.EqualTo((float)Number(value)), where); break;
        case "inv_scale":
          var word = new float[1];
          Ops.Cast(context, Tensor.At(scaler.GetDeviceState().InvScale, 1, DType.Fp32), Tensor.Of(word));
          Assert.That(word[0], Is.EqualTo((float)Number(value)), where);
          break;
        case "growth_tracker": Assert.That(ReportOf().GrowthTracker, Is.EqualTo(Integer(value)), where); break;
        case "hysteresis_tracker": Assert.That(ReportOf().HysteresisTracker, Is.EqualTo(Integer(value)), where); break;
        case "consecutive_skips": Assert.That(ReportOf().ConsecutiveSkips, Is.EqualTo(Integer(value)), where); break;
        case "updates": Assert.That(ReportOf().Updates, Is.EqualTo(Integer(value)), where); break;
        case "skipped": Assert.That(ReportOf().Skipped, Is.EqualTo(Integer(value)), where); break;
        case "overflow": Assert.That(ReportOf().Overflow, Is.EqualTo(value), where); break;
        case "at_floor": Assert.That(ReportOf().AtFloor, Is.EqualTo(value), where); break;
        case "floor_error":
          ReportOf();
          Assert.That(floorError, Is.EqualTo(value), where);
          break;
        case "apply": Assert.That(apply, Is.EqualTo(Number(value) != 0), where); break;
        case "history": JudgeHistory((object[])value, where); break;
        default:
          foreach (KeyValuePair<string, object> pair in (Object)value)
          {
            JudgeList(key, lists[pair.Key], pair.Value, where + ": " + pair.Key);
          }
          break;
      }
    }

    private void JudgeList(string key, Lists target, object value, string where)
    {
      switch (key)
      {
        case "params": JudgeElements(target.Weights, value, where); break;
        case "grads": JudgeElements(target.Gradients, value, where); break;
        case "steps":
          var steps = new[] { target.Optimizer.GetStepsApplied(), target.Optimizer.GetStepsSkipped() };
          Assert.That(steps, Is.EqualTo(((object[])value).Select(Integer)), where);
          break;
        case "report":
          Report report = ReportOf(target.Grads);
          foreach (KeyValuePair<string, object> pair in (Object)value)
          {
            JudgeReport(report, pair.Key, pair.Value, where + ": " + pair.Key);
          }
          break;
        default: throw new ArgumentException("unknown expectation " + key);
      }
    }

    private static void JudgeReport(Report report, string field, object value, string where)
    {
      switch (field)
      {
        case "overflow": Assert.That(report.Overflow, Is.EqualTo(value), where); break;
        case "nonfinite": Assert.That(report.NonfiniteCount, Is.EqualTo(Integer(value)), where); break;
        case "inf": Assert.That(report.InfCount, Is.EqualTo(Integer(value)), where); break;
        case "nan": Assert.That(report.NanCount, Is.EqualTo(Integer(value)), where); break;
        case "first_tensor": Assert.That(report.FirstTensor, Is.EqualTo(Integer(value)), where); break;
        case "first_element": Assert.That(report.FirstElement, Is.EqualTo(Integer(value)), where); break;
        case "norm": Near(Number(value), report.GradNorm, where); break;
        case "amax": Near(Number(value), report.GradAmax, where); break;
        default: throw new ArgumentException("unknown field of a report " + field);
      }
    }

    private void JudgeElements(Tensor[] tensors, object value, string where)
    {
      var all = new List<double>();
      foreach (Tensor tensor in tensors)
      {
        var exact = new double[tensor.Count];
        Ops.Cast(context, tensor, Tensor.Of(exact));
        all.AddRange(exact);
      }
      var each = value as object[];
      if (each != null)
      {
        Assert.That(all.Count, Is.EqualTo(each.Length), where);
      }
      for (int i = 0; i < all.Count; i++)
      {
        Near(Number(each == null ? value : each[i]), all[i], where);
      }
    }

    private static void Near(double expected, double got, string where)
    {
      if (double.IsNaN(expected) || double.IsInfinity(expected))
      {
        Assert.That(got, Is.EqualTo(expected), where);
      }
      else
      {
        Assert.That(got, Is.EqualTo(expected).Within(1e-6 * Math.Abs(expected)), where);
      }
    }

    private void JudgeHistory(object[] expected, string where)
    {
      IReadOnlyList<HistoryEntry> history = scaler.GetHistory();
      for (int i = 0; i < expected.Length; i++)
      {
        var entry = (object[])expected[i];
        HistoryEntry got = history[history.Count - expected.Length + i];
        Assert.That(got.Update, Is.EqualTo(Integer(entry[0])), where);
        Assert.That(got.Scale, Is.EqualTo((float)Number(entry[1])), where);
        Assert.That(got.Overflow, Is.EqualTo(Number(entry[2]) != 0), where);
      }
    }

    public void Dispose()
    {
      scaler.Dispose();
      context.Dispose();
    }
  }
}
