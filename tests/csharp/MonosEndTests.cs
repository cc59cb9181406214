// SPDX-License-Identifier: Apache-2.0
// Reports of Mono 6.8, recorded from a program whose threads call getppid and which does not load the library, and the
// same with a frame that makes the death somebody else's.
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class MonosEndTests
  {
    private const string Line = "=================================================================\n";
    private const string Mono = "\t0x5556eb09203c - mono : (null)\n\t0x5556eb0923dc - mono : (null)\n";
    private const string Ours = "\t0x7fdeb0011223 - /tmp/run/libgradscaler.so.1 : gsc_scaler_step\n";
    private const string Libc = "\t0x7fdebe23f050 - /lib/x86_64-linux-gnu/libc.so.6 : (null)\n";
    private const string Logged = Mono + Libc + "\t0x7fdebe229472 - /lib/x86_64-linux-gnu/libc.so.6 : abort\n" +
                                  "\t0x55d592c81959 - mono : monoeg_g_logv\n\t0x55d592c819ff - mono : monoeg_g_log\n";
    private const string Managed = "\tManaged Stacktrace:\n" + Line + "\t  at P:getppid <0x0009f>\n";
    private const string NoPointer = "\tBasic Fault Address Reporting\n" + Line +
                                     "instruction pointer is NULL, skip dumping\n" + Line +
                                     "\tManaged Stacktrace:\n" + Line + Line;

    private static string Report(string signal, string frames, string rest)
    {
      return "ended with 134\n" + Line + "\tNative Crash Reporting\n" + Line + "Got a " + signal +
             " while executing native code. This usually indicates\na fatal error in the mono runtime or one of the " +
             "native libraries \nused by your application.\n" + Line + "\n" + Line + "\tNative stacktrace:\n" + Line +
             frames + "\n" + Line + "\tTelemetry Dumper:\n" + Line +
             "Pkilling 0x7f46a51fa6c0 from 0x7f46a59fe6c0\n" + rest;
    }

    [TestCase(Logged, "SIGABRT", Managed, TestName = "It aborts with a message")]
    [TestCase(Mono, "SIGSEGV", NoPointer, TestName = "It jumps to address 0")]
    [TestCase(Mono + Mono, "SIGSEGV", "", TestName = "It jumps into its data, and its report breaks off")]
    public void IsKnown(string frames, string signal, string rest)
    {
      Assert.That(MonosEnd.Reports(Report(signal, frames, rest)), Is.True);
    }

    [TestCase(Logged + Ours, "SIGABRT", Managed, TestName = "The library is on the stack of an abort")]
    [TestCase(Mono + Libc, "SIGABRT", NoPointer, TestName = "An abort without Mono's message")]
    [TestCase(Mono, "SIGABRT", NoPointer, TestName = "An abort where a jump is expected")]
    [TestCase(Mono + Ours + Mono, "SIGSEGV", NoPointer, TestName = "The library is on the stack of a jump")]
    [TestCase(Mono + Libc, "SIGSEGV", NoPointer, TestName = "Another library is on the stack of a jump")]
    [TestCase(Logged, "SIGSEGV", NoPointer, TestName = "A segmentation fault where an abort is expected")]
    [TestCase(Mono, "SIGSEGV", Managed, TestName = "Managed code is on the stack of a jump")]
    [TestCase("", "SIGSEGV", NoPointer, TestName = "A stack without frames")]
    public void IsAnothers(string frames, string signal, string rest)
    {
      Assert.That(MonosEnd.Reports(Report(signal, frames, rest)), Is.False);
    }

    [Test]
    public void OneReportIsExpected()
    {
      string report = Report("SIGSEGV", Mono, NoPointer);
      Assert.That(MonosEnd.Reports(report + report), Is.False);
      Assert.That(MonosEnd.Reports("hangs at its end"), Is.False);
      Assert.That(MonosEnd.Reports("ended with 1\nUnhandled Exception: monoeg_g_log"), Is.False);
    }
  }
}
