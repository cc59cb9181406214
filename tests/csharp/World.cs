// SPDX-License-Identifier: Apache-2.0
// A context, a list of parameters and one of gradients, SGD of learning rate 1 over them, and a scaler.
using System;
using System.IO;
using System.Linq;
using System.Text.RegularExpressions;

namespace Gradscaler.Tests
{
  internal sealed class World : IDisposable
  {
    internal readonly Context Context = Context.Cpu(1);
    internal readonly float[] Weights;
    internal readonly float[] Gradients;
    internal readonly TensorList Params;
    internal readonly TensorList Grads;
    internal readonly Optimizer Optimizer;
    internal readonly GradScaler Scaler;

    internal World(int count, ScalerOptions options = null)
    {
      Weights = new float[count];
      Gradients = new float[count];
      Params = new TensorList(Context, Tensor.Of(Weights));
      Grads = new TensorList(Context, Tensor.Of(Gradients));
      Optimizer = new Optimizer(Context, new OptimizerOptions(OptimizerKind.Sgd) { Lr = 1 }, Params, Grads);
      Scaler = new GradScaler(Context, options ?? new ScalerOptions { InitScale = 1024 });
    }

    /// <summary>As a backward pass would: every gradient has this value before it is scaled.</summary>
    internal void Fill(float trueValue)
    {
      float value = trueValue * Scaler.GetScale();
      for (int i = 0; i < Gradients.Length; i++)
      {
        Gradients[i] = value;
      }
    }

    internal static long ResidentKilobytes()
    {
      string line = File.ReadAllLines("/proc/self/status").First(l => l.StartsWith("VmRSS:"));
      return long.Parse(Regex.Replace(line, "[^0-9]", ""));
    }

    public void Dispose()
    {
      Scaler.Dispose();
      Optimizer.Dispose();
      Grads.Dispose();
      Params.Dispose();
      Context.Dispose();
    }
  }
}
