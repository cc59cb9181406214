// SPDX-License-Identifier: Apache-2.0
// A 64-64-64-10 network with ReLU whose weights, activations and gradients are stored in fp16, as ushort. Products are
// accumulated in fp32 and rounded once, as tensor cores do. The library converts between the two.
using System;
using Gradscaler;

namespace Digits
{
  internal sealed class Network
  {
    private const int Layers = 3;
    private static readonly int[] Widths = { Dataset.Pixels, 64, 64, Dataset.Classes };

    /// <summary>Matrix (inputs x outputs) and bias of layer after layer.</summary>
    internal readonly Tensor[] Weights = new Tensor[2 * Layers];
    internal readonly Tensor[] Grads = new Tensor[2 * Layers];
    private readonly ushort[][] weights = new ushort[2 * Layers][];
    private readonly ushort[][] grads = new ushort[2 * Layers][];
    private readonly ushort[][] activations = new ushort[Layers + 1][];
    private readonly ushort[][] deltas = new ushort[Layers][];
    private readonly Context context;
    private readonly int rows;

    internal Network(Context context, int rows)
    {
      this.context = context;
      this.rows = rows;
      for (int i = 0; i < weights.Length; i++)
      {
        string name = "layer" + i / 2 + (i % 2 == 0 ? ".weight" : ".bias");
        weights[i] = new ushort[Size(i)];
        grads[i] = new ushort[Size(i)];
        Weights[i] = Tensor.Of(weights[i], DType.Fp16).Named(name);
        Grads[i] = Tensor.Of(grads[i], DType.Fp16).Named(name);
      }
      for (int i = 0; i <= Layers; i++)
      {
        activations[i] = new ushort[rows * Widths[i]];
      }
      for (int i = 0; i < Layers; i++)
      {
        deltas[i] = new ushort[rows * Widths[i + 1]];
      }
    }

    /// <summary>Where the caller stores the gradient that the backward pass starts from.</summary>
    internal ushort[] FirstDelta
    {
      get { return deltas[Layers - 1]; }
    }

    private static int Size(int tensor)
    {
      int layer = tensor / 2;
      return tensor % 2 == 0 ? Widths[layer] * Widths[layer + 1] : Widths[layer + 1];
    }

    /// <summary>fp32 values for the weights, by He's initialisation.</summary>
    internal Tensor[] MasterWeights(ulong seed)
    {
      var random = new RandomSource(seed, 1);
      var master = new Tensor[weights.Length];
      for (int i = 0; i < master.Length; i++)
      {
        var values = new float[Size(i)];
        float spread = (float)Math.Sqrt(2.0 / Widths[i / 2]);
        for (int j = 0; i % 2 == 0 && j < values.Length; j++)
        {
          values[j] = spread * random.Normal();
        }
        master[i] = Tensor.Of(values).Named(Weights[i].Name);
      }
      return master;
    }

    private float[] Unpack(ushort[] stored)
    {
      var values = new float[stored.Length];
      Ops.Cast(context, stored, DType.Fp16, values);
      return values;
    }

    private void Pack(float[] values, ushort[] stored)
    {
      Ops.Cast(context, values, stored, DType.Fp16);
    }

    internal void Forward(float[] pixels)
    {
      Pack(pixels, activations[0]);
      for (int layer = 0; layer < Layers; layer++)
      {
        int output = Widths[layer + 1];
        float[] z =
            Product(Unpack(activations[layer]), Unpack(weights[2 * layer]), rows, Widths[layer], output);
        float[] bias = Unpack(weights[2 * layer + 1]);
        for (int i = 0; i < z.Length; i++)
        {
          z[i] += bias[i % output];
          if (layer < Layers - 1 && z[i] < 0)
          {
            z[i] = 0;
          }
        }
        Pack(z, activations[layer + 1]);
      }
    }

    /// <summary>Gradient of the mean cross-entropy with respect to the logits, times the magnitude.</summary>
    internal float[] LossGradient(int[] labels, float magnitude)
    {
      const int Classes = Dataset.Classes;
      float[] g = Unpack(activations[Layers]);
      for (int i = 0; i < rows; i++)
      {
        float largest = g[i * Classes], sum = 0;
        for (int j = 1; j < Classes; j++)
        {
          largest = Math.Max(largest, g[i * Classes + j]);
        }
        for (int j = 0; j < Classes; j++)
        {
          g[i * Classes + j] = (float)Math.Exp(g[i * Classes + j] - largest);
          sum += g[i * Classes + j];
        }
        for (int j = 0; j < Classes; j++)
        {
          g[i * Classes + j] = (g[i * Classes + j] / sum - (j == labels[i] ? 1 : 0)) / rows * magnitude;
        }
      }
      return g;
    }

    internal void Backward()
    {
      for (int layer = Layers - 1; layer >= 0; layer--)
      {
        int input = Widths[layer], output = Widths[layer + 1];
        float[] x = Unpack(activations[layer]);
        float[] delta = Unpack(deltas[layer]);
        Pack(Product(Transpose(x, rows, input), delta, input, rows, output), grads[2 * layer]);
        var bias = new float[output];
        for (int i = 0; i < delta.Length; i++)
        {
          bias[i % output] += delta[i];
        }
        Pack(bias, grads[2 * layer + 1]);
        if (layer == 0)
        {
          return;
        }
        float[] below =
            Product(delta, Transpose(Unpack(weights[2 * layer]), input, output), rows, output, input);
        for (int i = 0; i < below.Length; i++)
        {
          below[i] = x[i] > 0 ? below[i] : 0;
        }
        Pack(below, deltas[layer - 1]);
      }
    }

    internal double Accuracy(Dataset test)
    {
      var batch = new float[rows * Dataset.Pixels];
      int right = 0;
      for (int first = 0; first < test.Labels.Length; first += rows)
      {
        int count = Math.Min(rows, test.Labels.Length - first);
        Array.Copy(test.Images, first * Dataset.Pixels, batch, 0, count * Dataset.Pixels);
        Forward(batch);
        float[] logits = Unpack(activations[Layers]);
        for (int i = 0; i < count; i++)
        {
          int best = 0;
          for (int j = 1; j < Dataset.Classes; j++)
          {
            if (logits[i * Dataset.Classes + j] > logits[i * Dataset.Classes + best])
            {
              best = j;
            }
          }
          right += best == test.Labels[first + i] ? 1 : 0;
        }
      }
      return (double)right / test.Labels.Length;
    }

    private static float[] Product(float[] a, float[] b, int n, int k, int m)
    {
      var result = new float[n * m];
      for (int i = 0; i < n; i++)
      {
        for (int p = 0; p < k; p++)
        {
          float factor = a[i * k + p];
          for (int j = 0; j < m; j++)
          {
            result[i * m + j] += factor * b[p * m + j];
          }
        }
      }
      return result;
    }

    private static float[] Transpose(float[] a, int rows, int columns)
    {
      var result = new float[a.Length];
      for (int i = 0; i < rows; i++)
      {
        for (int j = 0; j < columns; j++)
        {
          result[j * rows + i] = a[i * columns + j];
        }
      }
      return result;
    }
  }
}
