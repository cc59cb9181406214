// SPDX-License-Identifier: Apache-2.0
// Makes the calls of the rows of tests/conformance/bad_input.json, each on a separate world.
using System;
using System.Collections.Generic;
using System.Linq;

namespace Gradscaler.Tests
{
  using Object = Dictionary<string, object>;

  internal sealed class BadCalls : IDisposable
  {
    internal readonly World World = new World(4);
    private readonly Tensor memory = Tensor.Allocate(DType.Fp64, 8);

    /// <summary>The argument that is null; null if there is no such argument.</summary>
    internal void Make(string call, string nothing, Object with)
    {
      Context context = nothing == "context" ? null : World.Context;
      switch (call)
      {
        case "make_context": Context.Cpu(Integer(with, "num_threads")).Dispose(); break;
        case "device_info": Context.GetDeviceInfo(DeviceType.Cpu, Integer(with, "index")); break;
        case "make_scaler": new GradScaler(context, Conformance.Read(with, new ScalerOptions())).Dispose(); break;
        case "make_list": new TensorList(context, Tensors(with, "tensors")).Dispose(); break;
        case "list_get": World.Grads[Integer(with, "index")].ToString(); break;
        case "set_tensors": World.Grads.SetTensors(Tensors(with, "tensors")); break;
        case "ops_cast": Ops.Cast(context, Tensors(with, "src"), Tensors(with, "dst")); break;
        case "ops_update_scale":
          DeviceScalar real = DeviceScalar.Of(new float[1]);
          Ops.UpdateScale(context, real, DeviceScalar.Of(new int[1]), real, Number(with, "growth_factor"),
                          Number(with, "backoff_factor"), Integer(with, "growth_interval"));
          break;
        default:
          if (!OnScaler(call, nothing, with))
          {
            OnOptimizer(call, nothing, with, context);
          }
          break;
      }
    }

    private bool OnScaler(string call, string nothing, Object with)
    {
      GradScaler scaler = World.Scaler;
      TensorList grads = nothing == "grads" ? null : World.Grads;
      Optimizer optimizer = nothing == "optimizer" ? null : World.Optimizer;
      switch (call)
      {
        case "set_options": scaler.SetOptions(Conformance.Read(with, scaler.GetOptions())); return true;
        case "set_growth_factor": scaler.GrowthFactor = Number(with, "value"); return true;
        case "set_backoff_factor": scaler.BackoffFactor = Number(with, "value"); return true;
        case "set_growth_interval": scaler.GrowthInterval = Integer(with, "value"); return true;
        case "set_scale": scaler.SetScale((float)Number(with, "scale")); return true;
        case "set_state": scaler.SetState(nothing == "state" ? null : State(scaler.GetState(), with)); return true;
        case "unscale": scaler.Unscale(grads); return true;
        case "check": scaler.CheckGrads(grads); return true;
        case "check_range": scaler.CheckRange(grads, Integer(with, "first"), Integer(with, "count")); return true;
        case "clip_norm": scaler.ClipGradNorm(grads, Number(with, "max_norm")); return true;
        case "clip_value": scaler.ClipGradValue(grads, Number(with, "value")); return true;
        case "step": scaler.Step(optimizer); return true;
        case "step_and_update": scaler.StepAndUpdate(optimizer); return true;
        case "should_step": scaler.ShouldStep(grads); return true;
        case "update": scaler.Update(); return true;
        case "report": scaler.GetReport(grads); return true;
        default: return false;
      }
    }

    private void OnOptimizer(string call, string nothing, Object with, Context context)
    {
      Optimizer optimizer = World.Optimizer;
      switch (call)
      {
        case "make_optimizer":
          TensorList grads = nothing == "grads" ? null : List(with, "grads") ?? World.Grads;
          object[] state = with.ContainsKey("state") ? (object[])with["state"] : new object[0];
          new Optimizer(context, Options(with), World.Params, grads, List(with, "model_copy"),
                        state.Select(List).ToArray()).Dispose();
          break;
        case "add_group":
          optimizer.AddGroup(Integer(with, "first"), Integer(with, "count"), optimizer.GetOptions());
          break;
        case "set_lr": optimizer.SetLr(Integer(with, "group"), Number(with, "lr")); break;
        case "set_steps": optimizer.SetSteps(Integer(with, "applied"), Integer(with, "skipped")); break;
        case "state_tensor": optimizer.StateTensor(Integer(with, "slot"), Integer(with, "index")); break;
        case "save": optimizer.Save(new byte[Integer(with, "size")]); break;
        case "load": optimizer.Load(new byte[Integer(with, "size")]); break;
        default: throw new ArgumentException("unknown call " + call);
      }
    }

    private static OptimizerOptions Options(Object with)
    {
      var o = new OptimizerOptions(with.ContainsKey("kind") ? Conformance.DeviceScalar<OptimizerKind>(with["kind"])
                                                            : OptimizerKind.Sgd);
      foreach (string key in with.Keys.Except(new[] { "kind", "grads", "model_copy", "state" }))
      {
        Conformance.Set(o, key, with[key]);
      }
      return o;
    }

    private static ScalerState State(ScalerState state, Object with)
    {
      foreach (string key in with.Keys)
      {
        Conformance.Set(state, key, with[key]);
      }
      return state;
    }

    private static double Number(Object with, string key)
    {
      return Conformance.Number(with[key]);
    }

    private static int Integer(Object with, string key)
    {
      return Conformance.Integer(with[key]);
    }

    /// <summary>Pieces of this object's memory, by byte offset.</summary>
    private Tensor[] Tensors(Object with, string key)
    {
      return ((object[])with[key]).Cast<Object>().Select(d =>
      {
        IntPtr address = "null".Equals(d["at"]) ? IntPtr.Zero : memory.Address + Integer(d, "at");
        return Tensor.At(address, Integer(d, "count"),
                         d.ContainsKey("dtype") ? Conformance.DeviceScalar<DType>(d["dtype"]) : DType.Fp32);
      }).ToArray();
    }

    private TensorList List(Object with, string key)
    {
      return with.ContainsKey(key) ? List(with[key]) : null;
    }

    /// <summary>A list of fp32 tensors with memory of their own.</summary>
    private TensorList List(object counts)
    {
      return new TensorList(World.Context, ((object[])counts).Select(
          count => Tensor.Allocate(DType.Fp32, Conformance.Integer(count))).ToArray());
    }

    public void Dispose()
    {
      World.Dispose();
    }
  }
}
