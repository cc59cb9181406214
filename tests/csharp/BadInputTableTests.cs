// SPDX-License-Identifier: Apache-2.0
// The table of bad input that every language runs, each row a test. Arguments that only C# has: BadInputTests.
using System;
using System.Collections.Generic;
using System.Linq;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  using Object = Dictionary<string, object>;

  [TestFixture]
  public class BadInputTableTests
  {
    public static IEnumerable<TestCaseData> Rows()
    {
      Object file = Conformance.Parse(Conformance.PathOf("bad_input.json"));
      Assert.That(file["format"], Is.EqualTo(1));
      return ((object[])file["rows"]).Cast<Object>().Select(
          (row, i) => new TestCaseData(row).SetName(i + " " + row["call"]));
    }

    private static object Get(Object row, string key, object otherwise)
    {
      return row.ContainsKey(key) ? row[key] : otherwise;
    }

    [Test]
    [TestCaseSource("Rows")]
    public void Refused(object data)
    {
      var row = (Object)data;
      using (var calls = new BadCalls())
      {
        foreach (string earlier in (object[])Get(row, "first", new object[0]))
        {
          calls.Make(earlier, null, new Object());
        }
        float before = calls.World.Weights[3];
        var nothing = (string)Get(row, "null", null);
        TestDelegate call = () => calls.Make((string)row["call"], nothing, (Object)Get(row, "with", new Object()));
        if (nothing == null)
        {
          var e = Assert.Catch<GradScalerException>(call);
          Assert.That(e.Status, Is.EqualTo(Conformance.DeviceScalar<Status>(row["status"])), e.Message);
          Assert.That(e.Message, Is.StringContaining((string)row["says"]));
        }
        else
        {
          Assert.That(Assert.Throws<ArgumentNullException>(call).ParamName, Is.EqualTo(row["says"]));
        }
        WorksAsBefore(calls.World, before);
      }
    }

    /// <summary>A refused call has changed nothing.</summary>
    private static void WorksAsBefore(World w, float weight)
    {
      Assert.That(w.Scaler.GetScale(), Is.EqualTo(1024f));
      w.Scaler.Discard();
      w.Fill(1);
      w.Scaler.Step(w.Optimizer);
      w.Scaler.Update();
      Assert.That(w.Weights[3], Is.EqualTo(weight - 1));
      Assert.That(w.Scaler.GetReport().Updates, Is.EqualTo(1));
    }
  }
}
