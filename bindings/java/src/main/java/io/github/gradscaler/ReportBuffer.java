// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Host memory that {@link GradScaler#readReportAsync} writes a report to. Can be used again and again. */
public final class ReportBuffer {
  private final long address;
  /** Null if the caller owns the memory. */
  private final ByteBuffer memory;

  /** Allocates the memory, for scalers on the CPU. */
  public ReportBuffer() {
    memory = ByteBuffer.allocateDirect(size()).order(ByteOrder.nativeOrder());
    address = NativeCallsJNI.bufferAddress(memory);
    NativeCallsJNI.prepareReport(address);
  }

  private ReportBuffer(long address) {
    memory = null;
    this.address = address;
    NativeCallsJNI.prepareReport(address);
  }

  /** Pinned memory, as CUDA needs: {@link #size()} bytes, aligned to 8, which the caller keeps valid. */
  public static ReportBuffer at(long address) {
    if (address == 0 || address % Long.BYTES != 0) {
      throw new InvalidArgumentException("address is null or not aligned to 8 bytes");
    }
    return new ReportBuffer(address);
  }

  /** Bytes of a report. */
  public static int size() {
    return NativeCallsJNI.reportSize();
  }

  long address() {
    return address;
  }

  boolean isPinned() {
    return memory == null;
  }

  /** The report that was written last. Call it once the stream has passed that point; before, all is zero. */
  public Report get() {
    try (NativeReport report = new NativeReport(address, false)) {
      return new Report(report);
    } finally {
      java.lang.ref.Reference.reachabilityFence(this);
    }
  }
}
