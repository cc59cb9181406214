// SPDX-License-Identifier: Apache-2.0
// The code of docs/csharp.md, which page_snippets.py finds here word for word.
using Gradscaler;

namespace Gradscaler.Tests
{
  using NUnit.Framework;

  [TestFixture]
  public class PageTests
  {
    private readonly float[] masterWeights = new float[4];
    private readonly ushort[] gradients = new ushort[4];

    /// <summary>The loss is the sum of the weights, so that every gradient is the scale.</summary>
    private void Backward(bool overflows, float scale)
    {
      var full = new float[gradients.Length];
      for (int i = 0; i < full.Length; i++)
      {
        full[i] = overflows ? float.PositiveInfinity : scale;
      }
      using (var context = Context.Cpu(1))
      {
        Ops.Cast(context, Tensor.Of(full), Tensor.Of(gradients, DType.Fp16));
      }
    }

    [Test]
    public void FirstExample()
    {
      // 65536 is the first scale and inf in fp16, so that the first two batches overflow.
      bool[] batches = { false, true, false };
      using (var context = Context.Cpu())
      using (var parameters = new TensorList(context, Tensor.Of(masterWeights)))    // float[]
      using (var grads = new TensorList(context, Tensor.Of(gradients, DType.Fp16))) // ushort[]
      using (var optimizer = new Optimizer(context, new OptimizerOptions(OptimizerKind.AdamW) { Lr = 2e-3 },
                                           parameters, grads))
      using (var scaler = new GradScaler(context))
      {
          foreach (var batch in batches)
          {
              Backward(batch, scaler.GetScale());   // yours: fills the gradients
              scaler.ClipGradNorm(grads, 1.0);
              scaler.Step(optimizer);               // skipped if a gradient is inf or NaN
              scaler.Update();
          }
      }
      Assert.That(masterWeights[3], Is.EqualTo(-2e-3f).Within(1e-6f));
    }
  }
}
