// SPDX-License-Identifier: Apache-2.0
// The scenario files that every language runs, each a test of its own.
using System.Collections.Generic;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class ScenarioTests
  {
    public static IEnumerable<TestCaseData> Files()
    {
      return Conformance.Files("scenarios");
    }

    [Test]
    [TestCaseSource("Files")]
    public void Holds(string path)
    {
      Dictionary<string, object> file = Conformance.Parse(path);
      Assert.That(file["format"], Is.EqualTo(1));
      var events = (object[])file["events"];
      Assert.That(events, Is.Not.Empty);
      using (var world = new ScenarioWorld(file))
      {
        for (int i = 0; i < events.Length; i++)
        {
          var e = (Dictionary<string, object>)events[i];
          world.Act(e, "event " + i + " (" + e["do"] + ")");
        }
      }
    }
  }
}
