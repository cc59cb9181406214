// SPDX-License-Identifier: Apache-2.0
// What Mono 6.8 prints when it dies of itself at the end of a process, told apart from every other death.
using System;
using System.Linq;

namespace Gradscaler.Tests
{
  /// <summary>
  /// At its end Mono can die while a thread returns from a native function, even getppid in a program that does not
  /// load the library.
  /// </summary>
  internal static class MonosEnd
  {
    /// <summary>True if `output`, all that the process printed, is one of the two reports of that.</summary>
    internal static bool Reports(string output)
    {
      string[] parts = output.Split(new[] { "Native stacktrace:", "Telemetry Dumper:" }, StringSplitOptions.None);
      if (parts.Length != 3)
      {
        return false;
      }
      string[] frames = parts[1].Split('\n').Where(line => line.StartsWith("\t0x")).ToArray();
      return Aborts(parts[0], frames) || Jumps(parts[0], frames, parts[2]);
    }

    /// <summary>It aborts itself with a message, and the stack has nothing of the library.</summary>
    private static bool Aborts(string head, string[] frames)
    {
      return head.Contains("Got a SIGABRT") && frames.Any(frame => frame.Contains("monoeg_g_log")) &&
             !frames.Any(frame => frame.Contains("libgradscaler"));
    }

    /// <summary>
    /// It jumps to address 0 or into its data: the stack, also that of managed code, has Mono alone. What fails in the
    /// library or is called by it has a frame of another file.
    /// </summary>
    private static bool Jumps(string head, string[] frames, string rest)
    {
      return head.Contains("Got a SIGSEGV") && frames.Length > 0 && frames.All(frame => frame.Contains(" - mono : ")) &&
             !rest.Contains("\t  at ");
    }
  }
}
