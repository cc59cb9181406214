// SPDX-License-Identifier: Apache-2.0
// What calls return, copied out of native memory.
using System;

namespace Gradscaler
{
  /// <summary>What happened in an iteration.</summary>
  public sealed class Report
  {
    // gen-api: values gsc_report
    internal Report(NativeReport from)
    {
      Overflow = (from.Flags & NativeCalls.REPORT_OVERFLOW) != 0;
      AtFloor = (from.Flags & NativeCalls.REPORT_AT_FLOOR) != 0;
      Scale = from.Scale;
      GrowthTracker = from.GrowthTracker;
      HysteresisTracker = from.HysteresisTracker;
      ConsecutiveSkips = from.ConsecutiveSkips;
      Updates = from.Updates;
      Skipped = from.Skipped;
      GradNorm = from.GradNorm;
      GradAmax = from.GradAmax;
      NonfiniteCount = from.NonfiniteCount;
      InfCount = from.InfCount;
      NanCount = from.NanCount;
      FirstTensor = from.FirstTensor;
      FirstElement = from.FirstElement;
    }

    /// <summary>An inf or NaN was found: the step was, or will be, skipped.</summary>
    public bool Overflow { get; private set; }

    /// <summary>
    /// The scale cannot be lowered further and FloorPatience has run out (needs FloorAction.Report or
    /// FloorAction.Error).
    /// </summary>
    public bool AtFloor { get; private set; }

    /// <summary>The scale now.</summary>
    public float Scale { get; private set; }

    /// <summary>Clean steps since the scale last changed.</summary>
    public int GrowthTracker { get; private set; }

    /// <summary>Overflows left before the scale backs off.</summary>
    public int HysteresisTracker { get; private set; }

    /// <summary>Skipped updates in a row, the last one included; 0 if it was clean.</summary>
    public int ConsecutiveSkips { get; private set; }

    /// <summary>Updates so far, including those of a restored state.</summary>
    public long Updates { get; private set; }

    /// <summary>How many of these found an overflow.</summary>
    public long Skipped { get; private set; }

    /// <summary>
    /// L2 norm of the unscaled gradients before clipping; inf or NaN if they overflowed. With a reducer, over all
    /// ranks.
    /// </summary>
    public double GradNorm { get; private set; }

    /// <summary>
    /// Largest magnitude of this rank's unscaled gradients. Gradients stored as inf or NaN do not count.
    /// </summary>
    public double GradAmax { get; private set; }

    /// <summary>Number of non-finite gradients; with a reducer, over all ranks.</summary>
    public long NonfiniteCount { get; private set; }

    /// <summary>Of these, on this rank: +inf, -inf, and values that become inf when unscaled.</summary>
    public long InfCount { get; private set; }

    /// <summary>Of these, on this rank: NaN.</summary>
    public long NanCount { get; private set; }

    /// <summary>Index in its list of the first tensor with a non-finite gradient on this rank; -1 if none.</summary>
    public long FirstTensor { get; private set; }

    /// <summary>Index in that tensor of its first non-finite gradient; -1 if none.</summary>
    public long FirstElement { get; private set; }
    // gen-api: end
  }

  /// <summary>One update in the history of a GradScaler.</summary>
  public sealed class HistoryEntry
  {
    // gen-api: values gsc_history_entry
    internal HistoryEntry(NativeHistoryEntry from)
    {
      Update = from.Update;
      GradNorm = from.GradNorm;
      NonfiniteCount = from.NonfiniteCount;
      Scale = from.Scale;
      Overflow = from.Overflow != 0;
    }

    /// <summary>Number of the update, counted from 0, including those of a restored state.</summary>
    public long Update { get; private set; }

    /// <summary>L2 norm of the unscaled gradients of all its lists.</summary>
    public double GradNorm { get; private set; }

    /// <summary>Number of non-finite gradients in all its lists.</summary>
    public long NonfiniteCount { get; private set; }

    /// <summary>The scale after that update.</summary>
    public float Scale { get; private set; }

    /// <summary>Whether that update found an overflow.</summary>
    public bool Overflow { get; private set; }
    // gen-api: end
  }

  /// <summary>What is in one tensor.</summary>
  public sealed class TensorDiagnosis
  {
    // gen-api: values gsc_tensor_diagnosis
    internal TensorDiagnosis(NativeTensorDiagnosis from)
    {
      Count = from.Count;
      InfCount = from.InfCount;
      NanCount = from.NanCount;
      ZeroCount = from.ZeroCount;
      SubnormalCount = from.SubnormalCount;
      FirstNonfinite = from.FirstNonfinite;
      Amax = from.Amax;
      Amin = from.Amin;
      L2Norm = from.L2Norm;
    }

    /// <summary>Number of elements.</summary>
    public long Count { get; private set; }

    /// <summary>Number of +inf and -inf.</summary>
    public long InfCount { get; private set; }

    /// <summary>Number of NaN.</summary>
    public long NanCount { get; private set; }

    /// <summary>Number of +0 and -0.</summary>
    public long ZeroCount { get; private set; }

    /// <summary>Number of non-zero values below the smallest normal number of the tensor's dtype.</summary>
    public long SubnormalCount { get; private set; }

    /// <summary>Index of the first inf or NaN; -1 if there is none.</summary>
    public long FirstNonfinite { get; private set; }

    /// <summary>Largest magnitude of the finite values; 0 if there are none.</summary>
    public double Amax { get; private set; }

    /// <summary>Smallest non-zero magnitude of the finite values; 0 if there are none.</summary>
    public double Amin { get; private set; }

    /// <summary>Square root of the sum of squares of the finite values, summed in fp64.</summary>
    public double L2Norm { get; private set; }
    // gen-api: end
  }

  /// <summary>A recommended loss scale.</summary>
  public sealed class Recommendation
  {
    internal Recommendation(NativeRecommendation from)
    {
      Scale = from.Scale;
      Flushed = from.Flushed;
    }

    /// <summary>The largest power of two that leaves two binades of room.</summary>
    public float Scale { get; private set; }

    /// <summary>Share (0 to 1) of the values that would still be lost at that scale.</summary>
    public double Flushed { get; private set; }
  }

  /// <summary>What a device is.</summary>
  public sealed class DeviceInfo
  {
    internal DeviceInfo(NativeDeviceInfo from)
    {
      Type = (DeviceType)from.DeviceType;
      Index = from.DeviceIndex;
      Units = from.Units;
      Level = from.Level;
      MemoryBytes = from.MemoryBytes;
      Name = from.Name;
    }

    /// <summary>Kind of device.</summary>
    public DeviceType Type { get; private set; }

    /// <summary>Number of the device.</summary>
    public int Index { get; private set; }

    /// <summary>CPU: threads this process may run on. CUDA: number of multiprocessors.</summary>
    public int Units { get; private set; }

    /// <summary>
    /// CPU: the best usable instruction set, in the order of CpuTarget. CUDA: 10 * major + minor capability.
    /// </summary>
    public int Level { get; private set; }

    /// <summary>Memory of the device in bytes; 0 if unknown.</summary>
    public long MemoryBytes { get; private set; }

    /// <summary>Name of the device.</summary>
    public string Name { get; private set; }
  }

  /// <summary>
  /// Addresses of a scaler's device scalars, valid as long as the scaler. Read them in your own kernels.
  /// </summary>
  public sealed class DeviceState
  {
    // gen-api: values gsc_device_state
    internal DeviceState(NativeDeviceState from)
    {
      Scale = from.Scale;
      InvScale = from.InvScale;
      GrowthTracker = from.GrowthTracker;
      HysteresisTracker = from.HysteresisTracker;
      FoundInf = from.FoundInf;
      GradNorm = from.GradNorm;
    }

    /// <summary>Address (fp32): the scale.</summary>
    public IntPtr Scale { get; private set; }

    /// <summary>Address (fp32): 1 / scale, computed in fp64 and rounded.</summary>
    public IntPtr InvScale { get; private set; }

    /// <summary>Address (32-bit integer): clean steps since the scale last changed.</summary>
    public IntPtr GrowthTracker { get; private set; }

    /// <summary>Address (32-bit integer): overflows left before the scale backs off.</summary>
    public IntPtr HysteresisTracker { get; private set; }

    /// <summary>
    /// Address (fp32): number of non-finite gradients of the given list, as a float. IntPtr.Zero if no list was given.
    /// </summary>
    public IntPtr FoundInf { get; private set; }

    /// <summary>
    /// Address (fp64): l2 norm of the unscaled gradients of the given list. IntPtr.Zero if no list was given.
    /// </summary>
    public IntPtr GradNorm { get; private set; }
    // gen-api: end
  }
}
