// SPDX-License-Identifier: Apache-2.0
// The exceptions of failed calls. A null argument is an ArgumentNullException and use after Dispose an
// ObjectDisposedException, as everywhere in .NET.
using System;

namespace Gradscaler
{
  /// <summary>A call that failed, with the library's message. The subclasses are the kinds of failure.
  /// A callback's exception is the inner exception.</summary>
  public class GradScalerException : Exception
  {
    internal GradScalerException(Status status, string message, Exception inner = null)
        : base(message, inner)
    {
      Status = status;
    }

    /// <summary>What kind of failure it is.</summary>
    public Status Status { get; private set; }

    /// <summary>The argument that the failure is about, by its name in the C interface, such as "tensors" or "options".
    /// Null if it is not about one, or was found before the library was asked.</summary>
    public string Argument { get; private set; }

    /// <summary>The member, if the argument or an entry of it is a struct, such as "init_scale". Else null.</summary>
    public string Field { get; private set; }

    /// <summary>The state slot, parameter group or bin. -1 if there is none.</summary>
    public long Index { get; private set; } = -1;

    /// <summary>The position in a list of tensors. -1 if there is none.</summary>
    public long Tensor { get; private set; } = -1;

    internal GradScalerException About(ErrorDetails details)
    {
      string argument = Text.FromNative(details.Argument);
      string field = Text.FromNative(details.Field);
      Argument = argument != "" ? argument : null;
      Field = field != "" ? field : null;
      Index = details.Index;
      Tensor = details.Tensor;
      return this;
    }

    internal static GradScalerException Of(Status status, string message)
    {
      switch (status)
      {
        case Status.InvalidArgument:
          return new InvalidArgumentException(message);
        case Status.BadState:
          return new BadStateException(message);
        case Status.OutOfMemory:
          return new AllocationException(message);
        case Status.Unavailable:
          return new UnavailableException(message);
        case Status.Unsupported:
          return new UnsupportedException(message);
        case Status.Device:
          return new DeviceException(message);
        case Status.ScaleFloor:
          return new ScaleFloorException(message);
        case Status.Spikes:
          return new SpikesException(message);
        case Status.Callback:
          return new GradScalerException(status, message, CallbackSlot.TakeFailure());
        default:
          return new GradScalerException(Enum.IsDefined(typeof(Status), status) ? status : Status.Internal, message);
      }
    }
  }

  /// <summary>Training makes no progress. Only from reading a report, which the exception has.</summary>
  public abstract class ReportException : GradScalerException
  {
    internal ReportException(Status status, string message)
        : base(status, message)
    {
    }

    /// <summary>The report that was asked for.</summary>
    public Report Report { get; internal set; }
  }

  /// <summary>The scale could not be lowered any further. Only with FloorAction.Error, from reading a report.</summary>
  public sealed class ScaleFloorException : ReportException
  {
    internal ScaleFloorException(string message)
        : base(Status.ScaleFloor, message)
    {
    }
  }

  /// <summary>Gradient norms stay above their limit. Only with SpikeAction.Error, from reading a report.</summary>
  public sealed class SpikesException : ReportException
  {
    internal SpikesException(string message)
        : base(Status.Spikes, message)
    {
    }
  }
}
