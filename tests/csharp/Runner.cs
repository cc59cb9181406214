// SPDX-License-Identifier: Apache-2.0
// Runs the fixtures in an assembly, or the one that is named, on .NET, where NUnit's own runner does not work. Every
// test gets a new object. Of NUnit's attributes it knows [TestFixture] and [Test]; a fixture with another fails, so
// that nothing is silently left out. Usage: Runner.exe <assembly> [fixture]; fails if a test does, or if there is none.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;
using NUnit.Framework;

internal static class Runner
{
  private const BindingFlags Members = BindingFlags.Public | BindingFlags.NonPublic | BindingFlags.Instance |
                                       BindingFlags.Static | BindingFlags.DeclaredOnly;

  private static int Main(string[] arguments)
  {
    int run = 0, failed = 0;
    Type[] types = Assembly.LoadFrom(arguments[0]).GetTypes();
    Type[] fixtures = types.Where(type => type.IsDefined(typeof(TestFixtureAttribute), false) &&
                                          (arguments.Length == 1 || type.Name == arguments[1])).ToArray();
    foreach (string unknown in fixtures.SelectMany(Unknown))
    {
      failed++;
      Console.WriteLine(unknown);
    }
    foreach (Type fixture in fixtures)
    {
      foreach (MethodInfo test in fixture.GetMethods().Where(m => m.IsDefined(typeof(TestAttribute), false)))
      {
        run++;
        try
        {
          test.Invoke(Activator.CreateInstance(fixture), null);
        }
        catch (Exception e)
        {
          failed++;
          Exception cause = e is TargetInvocationException ? e.InnerException : e;
          Console.WriteLine("{0}.{1}: {2}", fixture.Name, test.Name, cause);
        }
      }
    }
    Console.WriteLine("{0} tests run, {1} failed", run, failed);
    return run == 0 || failed > 0 ? 1 : 0;
  }

  /// <summary>What is not run as NUnit would.</summary>
  private static IEnumerable<string> Unknown(Type fixture)
  {
    IEnumerable<MemberInfo> members = new MemberInfo[] { fixture }.Concat(fixture.GetMembers(Members));
    foreach (MemberInfo member in members)
    {
      foreach (CustomAttributeData data in member.GetCustomAttributesData())
      {
        Type type = data.AttributeType;
        bool known = (type == typeof(TestFixtureAttribute) || type == typeof(TestAttribute)) &&
                     data.ConstructorArguments.Count == 0 && data.NamedArguments.Count == 0;
        if (type.Namespace == typeof(TestAttribute).Namespace && !known)
        {
          yield return fixture.Name + ": the runner does not know this " + type.Name + " of " + member.Name;
        }
      }
      var method = member as MethodInfo;
      if (method != null && method.IsDefined(typeof(TestAttribute), false) &&
          (!method.IsPublic || method.ReturnType != typeof(void) || method.GetParameters().Length > 0))
      {
        yield return fixture.Name + ": the test " + method.Name + " is not a public void without parameters";
      }
    }
  }
}
