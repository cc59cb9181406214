// SPDX-License-Identifier: Apache-2.0
// Runs the fixtures in an assembly where NUnit's own runner does not: under .NET. Knows [Test], and nothing more of
// NUnit. Usage: Runner.exe <assembly>; fails if a test does, or if there is none.
using System;
using System.Linq;
using System.Reflection;
using NUnit.Framework;

internal static class Runner
{
  private static int Main(string[] arguments)
  {
    int run = 0, failed = 0;
    foreach (Type fixture in Assembly.LoadFrom(arguments[0]).GetTypes().Where(Has<TestFixtureAttribute>))
    {
      foreach (MethodInfo test in fixture.GetMethods().Where(Has<TestAttribute>))
      {
        run++;
        try
        {
          test.Invoke(Activator.CreateInstance(fixture), null);
        }
        catch (TargetInvocationException e)
        {
          failed++;
          Console.WriteLine("{0}.{1}: {2}", fixture.Name, test.Name, e.InnerException);
        }
      }
    }
    Console.WriteLine("{0} tests run, {1} failed", run, failed);
    return run == 0 || failed > 0 ? 1 : 0;
  }

  private static bool Has<T>(MemberInfo member) where T : Attribute => member.IsDefined(typeof(T), false);
}
