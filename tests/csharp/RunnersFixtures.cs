// SPDX-License-Identifier: Apache-2.0
// For the tests of Runner.cs: a fixture that passes, one that fails, and one that it refuses.
using System;
using NUnit.Framework;

namespace RunnersFixtures
{
  [TestFixture]
  public class Passing
  {
    private int calls;

    [Test]
    public void First() => Assert.That(++calls, Is.EqualTo(1));

    [Test]
    public void Second() => Assert.That(++calls, Is.EqualTo(1));
  }

  [TestFixture]
  public class Failing
  {
    [Test]
    public void OneIsTwo() => Assert.That(1, Is.EqualTo(2), "one");

    [Test]
    public void Throws() => throw new InvalidOperationException("thrown");
  }

  [TestFixture]
  public class Unknown
  {
    [SetUp]
    public void Before()
    {
    }

    [TestCase(1)]
    public void Takes(int number)
    {
    }

    [Test, Ignore("why")]
    public void Ignored()
    {
    }

    [Test]
    internal void Hidden()
    {
    }
  }
}
