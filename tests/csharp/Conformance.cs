// SPDX-License-Identifier: Apache-2.0
// Reads the conformance files: numbers, enumerations and scaler options as they are written there. Unknown
// names are errors, so that a misspelt one cannot pass unnoticed. The environment has their path.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Reflection;

namespace Gradscaler.Tests
{
  using Object = Dictionary<string, object>;

  internal static class Conformance
  {
    private static readonly string[] Flags =
    {
      "grow_on_equal", "no_finite_guard", "floor_exclusive", "fp32_products"
    };

    internal static string PathOf(string name)
    {
      return Path.Combine(Environment.GetEnvironmentVariable("GRADSCALER_CONFORMANCE"), name);
    }

    internal static Object Parse(string path)
    {
      return Json.Parse(File.ReadAllText(path));
    }

    /// <summary>Numbers that JSON lacks are strings.</summary>
    internal static double Number(object value)
    {
      switch (value as string)
      {
        case "inf":
          return double.PositiveInfinity;
        case "-inf":
          return double.NegativeInfinity;
        case "nan":
          return double.NaN;
        default:
          return (double)value;
      }
    }

    internal static int Integer(object value)
    {
      return (int)Number(value);
    }

    internal static T DeviceScalar<T>(object word) where T : struct
    {
      return (T)Enum.Parse(typeof(T), ((string)word).Replace("_", ""), true);
    }

    internal static ScalerOptions Read(Object values, ScalerOptions o)
    {
      if (values.ContainsKey("preset"))
      {
        o = new ScalerOptions(DeviceScalar<Preset>(values["preset"]));
      }
      foreach (KeyValuePair<string, object> pair in values.Where(p => p.Key != "preset"))
      {
        if (pair.Key == "flags")
        {
          foreach (string flag in Flags)
          {
            Set(o, flag, ((object[])pair.Value).Contains(flag) ? 1.0 : 0.0);
          }
        }
        else
        {
          Set(o, pair.Key, pair.Value);
        }
      }
      return o;
    }

    /// <summary>Sets the property GrowthInterval for "growth_interval".</summary>
    internal static void Set(object target, string key, object value)
    {
      string name = string.Concat(key.Split('_').Select(word => char.ToUpperInvariant(word[0]) + word.Substring(1)));
      PropertyInfo property = target.GetType().GetProperty(name);
      if (property == null)
      {
        throw new ArgumentException("unknown option " + key);
      }
      try
      {
        property.SetValue(target, As(property.PropertyType, value), null);
      }
      catch (TargetInvocationException e)
      {
        throw e.InnerException;
      }
    }

    private static object As(Type type, object value)
    {
      if (type.IsEnum)
      {
        return Enum.Parse(type, ((string)value).Replace("_", ""), true);
      }
      double number = Number(value);
      return type == typeof(bool) ? (object)(number != 0) : type == typeof(float) ? (object)(float)number
             : type == typeof(int) ? (object)(int)number : type == typeof(long) ? (object)(long)number : number;
    }
  }
}
