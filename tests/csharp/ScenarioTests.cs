// SPDX-License-Identifier: Apache-2.0
// The scenario files that every language runs, each a test of its own. The environment says where they are.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Web.Script.Serialization;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class ScenarioTests
  {
    public static IEnumerable<TestCaseData> Files()
    {
      string folder = Environment.GetEnvironmentVariable("GRADSCALER_SCENARIOS");
      return Directory.GetFiles(folder, "*.json").OrderBy(f => f).Select(
          f => new TestCaseData(f).SetName(Path.GetFileNameWithoutExtension(f)));
    }

    [Test]
    [TestCaseSource("Files")]
    public void Holds(string path)
    {
      var file = (Dictionary<string, object>)new JavaScriptSerializer().DeserializeObject(File.ReadAllText(path));
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
