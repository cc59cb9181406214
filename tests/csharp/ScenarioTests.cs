// SPDX-License-Identifier: Apache-2.0
// The scenarios that every language runs, each as a test.
using System.Collections.Generic;
using System.Linq;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class ScenarioTests
  {
    public static IEnumerable<TestCaseData> Scenarios()
    {
      Dictionary<string, object> file = Conformance.Parse(Conformance.PathOf("scenarios.json"));
      Assert.That(file["format"], Is.EqualTo(1));
      return ((object[])file["scenarios"]).Cast<Dictionary<string, object>>().Select(
          scenario => new TestCaseData(scenario).SetName((string)scenario["name"]));
    }

    [Test]
    [TestCaseSource("Scenarios")]
    public void Holds(Dictionary<string, object> scenario)
    {
      var events = (object[])scenario["events"];
      Assert.That(events, Is.Not.Empty);
      using (var world = new ScenarioWorld(scenario))
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
