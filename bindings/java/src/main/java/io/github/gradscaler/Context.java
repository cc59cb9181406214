// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.util.function.BiConsumer;

/**
 * A device that has been opened: the CPU or a CUDA device. Safe to share between threads. May be closed before the
 * objects made with it; they keep the device open.
 */
public final class Context implements AutoCloseable {
  private NativeContext handle;
  private final CallbackSlot callbacks = new CallbackSlot();

  private Context(NativeContextOptions options) {
    NativeMemory.beforeAllocation();
    handle = new NativeContext(options);
    handle.keep(callbacks);
    handle.uses().count(NativeMemory.ofContext(handle.deviceType() == DeviceType.CPU.code() ? handle.numThreads() : 1));
  }

  /** The CPU with all its threads. */
  public static Context cpu() {
    return cpu(0);
  }

  /** The CPU with as many threads for a call, the calling one included; 0: as many as this process may run on. */
  public static Context cpu(int threads) {
    return cpu(threads, CpuTarget.BEST);
  }

  /** As {@link #cpu(int)} with a required instruction set. Errors: UnavailableException if the processor lacks it. */
  public static Context cpu(int threads, CpuTarget target) {
    try (NativeContextOptions options = new NativeContextOptions()) {
      options.setNumThreads(threads);
      options.setCpuTarget(Check.notNull(target, "target").code());
      return new Context(options);
    }
  }

  /** The CUDA device of a number. Errors: UnavailableException if there is no such device. */
  public static Context cuda(int index) {
    return cuda(index, false);
  }

  /**
   * As {@link #cuda(int)}. useCurrentContext: work in the CUDA context that is current on this thread, not in the
   * device's primary one, for programs that create CUDA contexts: their memory and streams are invalid in the primary
   * one. That context must outlive this one and its objects. Errors: InvalidArgumentException if no CUDA context is
   * current, or one of another device.
   */
  public static Context cuda(int index, boolean useCurrentContext) {
    try (NativeContextOptions options = new NativeContextOptions()) {
      options.setDeviceType(DeviceType.CUDA.code());
      options.setDeviceIndex(index);
      options.setFlags(useCurrentContext ? NativeCalls.CONTEXT_USE_CURRENT : 0);
      return new Context(options);
    }
  }

  /** Number of devices of a type: 1 for the CPU, 0 for CUDA without a driver. */
  public static int deviceCount(DeviceType type) {
    return NativeCalls.deviceCount(Check.notNull(type, "type").code());
  }

  /** The properties of a device. Errors: UnavailableException if there is no such device. */
  public static DeviceInfo deviceInfo(DeviceType type, int index) {
    try (NativeDeviceInfo info = new NativeDeviceInfo()) {
      NativeCalls.deviceInfo(Check.notNull(type, "type").code(), index, info);
      return new DeviceInfo(info);
    }
  }

  /** The library's version, such as "0.1.0". */
  public static String version() {
    return NativeCalls.version();
  }

  /** One line for bug reports: version, compiler, instruction sets. */
  public static String buildInfo() {
    return NativeCalls.build_info();
  }

  NativeContext handle() {
    return Check.open(handle, Context.class);
  }

  /** To be kept by every object of the device: its calls write to the log, also after the context is closed. */
  CallbackSlot callbacks() {
    return callbacks;
  }

  static NativeContext handleOf(Context context) {
    return Check.notNull(context, "context").handle();
  }

  /** Kind of device. */
  public DeviceType deviceType() {
    return DeviceType.of(handle().deviceType());
  }

  /** Number of the device; 0 for the CPU. */
  public int deviceIndex() {
    return handle().deviceIndex();
  }

  /** The instruction set in use on the CPU, never BEST. */
  public CpuTarget cpuTarget() {
    return CpuTarget.of(handle().cpuTarget());
  }

  /** Threads that a call may use on the CPU. */
  public int numThreads() {
    return handle().numThreads();
  }

  /** Host memory that the library holds for this context and its objects; on the CPU all of it. */
  public long hostBytes() {
    return handle().hostBytes();
  }

  /** Memory of a CUDA device that the library holds for this context and its objects, without scratch. */
  public long deviceBytes() {
    return handle().deviceBytes();
  }

  /**
   * Sets the receiver of the library's messages; without one the library is silent. Not while another thread uses the
   * context. The receiver is called on the thread whose call caused the message, and must not use that call's objects;
   * what it throws is dropped; null silences.
   */
  public void setLog(@Nullable BiConsumer<LogLevel, String> receiver) {
    final NativeContext context = handle();
    final long slot = receiver == null ? 0 : callbacks.number();
    context.uses().call(address -> NativeCallsJNI.setLog(context, address, slot));
    callbacks.log = receiver;
  }

  /** Such as {@code Context(CPU, AVX2, 8 threads)} or {@code Context(CUDA 0)}. */
  @Override
  public String toString() {
    try {
      return deviceType() == DeviceType.CPU ? "Context(CPU, " + cpuTarget() + ", " + numThreads() + " threads)"
          : "Context(" + deviceType() + " " + deviceIndex() + ")";
    } catch (BadStateException e) {
      return "Context(closed)";
    }
  }

  /** Closes it after the calls in progress on other threads. Does nothing the second time. */
  @Override
  public void close() {
    final NativeContext was = handle;
    handle = null;
    if (was != null) {
      was.close();
    }
  }
}
