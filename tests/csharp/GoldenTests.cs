// SPDX-License-Identifier: Apache-2.0
// The golden trajectories of other systems: every update of every recorded run must leave the same fp32 bits. The
// format is described in tests/conformance/README.md.
using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  using Object = Dictionary<string, object>;

  [TestFixture]
  public class GoldenTests
  {
    public static IEnumerable<TestCaseData> Files()
    {
      return Directory.GetFiles(Conformance.PathOf("goldens")).OrderBy(f => f, StringComparer.Ordinal).Select(
          f => new TestCaseData(f).SetName(Path.GetFileNameWithoutExtension(f)));
    }

    [Test]
    [TestCaseSource("Files")]
    public void SameTrajectory(string path)
    {
      Object file = Conformance.Parse(path);
      var runs = (object[])file["runs"];
      Assert.That(runs, Is.Not.Empty, "a golden without runs proves nothing");
      using (Context context = Context.Cpu(1))
      {
        foreach (Object run in runs)
        {
          Replay(context, new ScalerOptions(Conformance.DeviceScalar<Preset>(file["preset"])), run);
        }
      }
    }

    private static void Replay(Context context, ScalerOptions options, Object run)
    {
      string where = run["case"] + ", seed " + run["seed"];
      var gradient = new float[1];
      var scales = (object[])run["scale"];
      var held = (object[])run["held"];
      using (var grads = new TensorList(context, Tensor.Of(gradient)))
      using (var scaler = new GradScaler(context, Conformance.Read((Object)run["options"], options)))
      {
        int update = 0, next = 0, expected = 0;
        long left = 0;
        bool overflow = false;
        foreach (object length in (object[])run["overflow"])
        {
          for (int i = 0; i < Conformance.Integer(length); i++, update++)
          {
            if (left == 0)
            {
              expected = Bits(scales[next]);
              left = Conformance.Integer(held[next++]);
            }
            left--;
            gradient[0] = overflow ? float.PositiveInfinity : 1;
            scaler.CheckGrads(grads);
            scaler.Update();
            int bits = BitsOf(scaler.GetScale());
            if (bits != expected)
            {
              Assert.Fail("{0}: after update {1} the bits are {2:x8}, not {3:x8}", where, update, bits, expected);
            }
          }
          overflow = !overflow;
        }
        Assert.That(next, Is.EqualTo(scales.Length), where + ": the run is shorter than its trajectory");
        Assert.That(left, Is.EqualTo(0), where + ": the run is shorter than its trajectory");
      }
    }

    /// <summary>A power of two is written by its exponent, anything else by its bits.</summary>
    private static int Bits(object scale)
    {
      var hex = scale as string;
      return hex == null ? BitsOf((float)Math.Pow(2, Conformance.Integer(scale)))
                         : int.Parse(hex, NumberStyles.HexNumber);
    }

    private static int BitsOf(float value)
    {
      return BitConverter.ToInt32(BitConverter.GetBytes(value), 0);
    }
  }
}
