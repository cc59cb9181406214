// SPDX-License-Identifier: Apache-2.0
// Reads the conformance files: numbers, enumerations and scaler options as they are written there. Unknown
// names are errors, so that a misspelt one cannot pass unnoticed. The environment has their path.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;

namespace Gradscaler.Tests
{
  using Object = Dictionary<string, object>;

  internal static class Conformance
  {
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
        ReadOption(o, pair.Key, pair.Value);
      }
      return o;
    }

    private static void ReadOption(ScalerOptions o, string key, object value)
    {
      switch (key)
      {
        case "init_scale": o.InitScale = (float)Number(value); break;
        case "min_scale": o.MinScale = (float)Number(value); break;
        case "max_scale": o.MaxScale = (float)Number(value); break;
        case "growth_interval": o.GrowthInterval = Integer(value); break;
        case "growth_factor": o.GrowthFactor = Number(value); break;
        case "backoff_factor": o.BackoffFactor = Number(value); break;
        case "enabled": o.Enabled = Number(value) != 0; break;
        case "hysteresis": o.Hysteresis = Integer(value); break;
        case "hysteresis_refill": o.HysteresisRefill = DeviceScalar<HysteresisRefill>(value); break;
        case "growth_timing": o.GrowthTiming = DeviceScalar<GrowthTiming>(value); break;
        case "overflow_tolerance": o.OverflowTolerance = Number(value); break;
        case "recovery_threshold": o.RecoveryThreshold = (float)Number(value); break;
        case "recovery_interval": o.RecoveryInterval = Integer(value); break;
        case "floor_action": o.FloorAction = DeviceScalar<FloorAction>(value); break;
        case "floor_patience": o.FloorPatience = Integer(value); break;
        case "history_capacity": o.HistoryCapacity = Integer(value); break;
        case "flags":
          var words = (object[])value;
          o.GrowOnEqual = words.Contains("grow_on_equal");
          o.NoFiniteGuard = words.Contains("no_finite_guard");
          o.FloorExclusive = words.Contains("floor_exclusive");
          o.Fp32Products = words.Contains("fp32_products");
          break;
        default: throw new ArgumentException("unknown option " + key);
      }
    }
  }
}
