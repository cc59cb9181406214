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

  /**
   * The CPU with all its threads.
   *
   * @return a new context
   */
  public static Context cpu() {
    return cpu(0, CpuTarget.BEST);
  }

  /**
   * The CPU with some of its threads.
   *
   * @param threads threads a call may use, the calling one included; 0: as many as this process may run on
   * @return a new context
   */
  public static Context cpu(int threads) {
    return cpu(threads, CpuTarget.BEST);
  }

  /**
   * The CPU with a required instruction set.
   *
   * @param threads threads a call may use, the calling one included; 0: as many as this process may run on
   * @param target an instruction set
   * @return a new context
   * @throws UnavailableException if the processor lacks it
   */
  public static Context cpu(int threads, CpuTarget target) {
    try (NativeContextOptions options = new NativeContextOptions()) {
      options.setNumThreads(threads);
      options.setCpuTarget(Check.notNull(target, "target").code());
      return new Context(options);
    }
  }

  /**
   * A CUDA device.
   *
   * @param index its number
   * @return a new context
   * @throws UnavailableException if there is no such device
   */
  public static Context cuda(int index) {
    return cuda(index, false);
  }

  /**
   * A CUDA device, in its primary context or in the current one.
   *
   * @param index its number
   * @param useCurrentContext work in the CUDA context that is current on this thread, not in the device's primary one:
   *     for programs that create CUDA contexts, whose memory and streams are invalid in the primary one;
   *     that context must outlive this one and its objects
   * @return a new context
   * @throws UnavailableException if there is no such device
   * @throws InvalidArgumentException if no CUDA context is current, or one of another device
   */
  public static Context cuda(int index, boolean useCurrentContext) {
    try (NativeContextOptions options = new NativeContextOptions()) {
      options.setDeviceType(DeviceType.CUDA.code());
      options.setDeviceIndex(index);
      options.setFlags(useCurrentContext ? NativeCalls.CONTEXT_USE_CURRENT : 0);
      return new Context(options);
    }
  }

  /**
   * Number of devices of a type.
   *
   * @param type which type
   * @return 1 for the CPU; 0 for CUDA without a driver
   */
  public static int deviceCount(DeviceType type) {
    return NativeCalls.deviceCount(Check.notNull(type, "type").code());
  }

  /**
   * The properties of a device.
   *
   * @param type which type
   * @param index which one of that type
   * @return new information
   * @throws UnavailableException if there is no such device
   */
  public static DeviceInfo deviceInfo(DeviceType type, int index) {
    try (NativeDeviceInfo info = new NativeDeviceInfo()) {
      NativeCalls.deviceInfo(Check.notNull(type, "type").code(), index, info);
      return new DeviceInfo(info);
    }
  }

  /**
   * The library's version.
   *
   * @return such as "0.1.0"
   */
  public static String version() {
    return NativeCalls.version();
  }

  /**
   * One line for bug reports.
   *
   * @return version, compiler, instruction sets
   */
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

  /**
   * Kind of device.
   *
   * @return never null
   */
  public DeviceType deviceType() {
    return DeviceType.of(handle().deviceType());
  }

  /**
   * Number of the device.
   *
   * @return 0 for the CPU
   */
  public int deviceIndex() {
    return handle().deviceIndex();
  }

  /**
   * The instruction set in use on the CPU.
   *
   * @return never BEST
   */
  public CpuTarget cpuTarget() {
    return CpuTarget.of(handle().cpuTarget());
  }

  /**
   * Threads that a call may use on the CPU.
   *
   * @return at least 1
   */
  public int numThreads() {
    return handle().numThreads();
  }

  /**
   * Host memory that the library holds for this context and its objects; on the CPU all of it.
   *
   * @return bytes
   */
  public long hostBytes() {
    return handle().hostBytes();
  }

  /**
   * Memory of a CUDA device that the library holds for this context and its objects, without scratch.
   *
   * @return bytes
   */
  public long deviceBytes() {
    return handle().deviceBytes();
  }

  /**
   * Sets the receiver of the library's messages; without one the library is silent. Not while another thread uses the
   * context.
   *
   * @param receiver called on the thread whose call caused the message, and must not use that call's objects; what it
   *     throws is dropped; null silences
   */
  public void setLog(@Nullable BiConsumer<LogLevel, String> receiver) {
    final NativeContext context = handle();
    final long address = context.uses().begin();
    try {
      NativeCallsJNI.setLog(context, address, receiver == null ? 0 : callbacks.number());
      callbacks.log(receiver);
    } finally {
      context.uses().end();
    }
  }

  /**
   * A short description, for messages.
   *
   * @return such as {@code Context(CPU, AVX2, 8 threads)} or {@code Context(CUDA 0)}
   */
  @Override
  public String toString() {
    try {
      return deviceType() == DeviceType.CPU ? "Context(CPU, " + cpuTarget() + ", " + numThreads() + " threads)"
          : "Context(" + deviceType() + " " + deviceIndex() + ")";
    } catch (BadStateException e) {
      return "Context(closed)";
    }
  }

  /** Closes the device after the calls that other threads have in progress. Does nothing the second time. */
  @Override
  public void close() {
    final NativeContext was = handle;
    handle = null;
    if (was != null) {
      was.close();
    }
  }
}
