// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.util.ArrayList;
import java.util.List;

/**
 * The loss scale, its policy, counters and history.
 *
 * <p>Between two updates every list of gradients goes from ready to checked or unscaled to stepped. Use a scaler from
 * one thread at a time. Methods with a stream enqueue on it on a CUDA device; those without use the default stream.
 *
 * <pre>{@code
 * try (Context context = Context.cpu();
 *     GradScaler scaler = new GradScaler(context);
 *     TensorList params = new TensorList(context, master);
 *     TensorList grads = new TensorList(context, gradients);
 *     Optimizer optimizer = new Optimizer(context, OptimizerOptions.adamW().lr(2e-3), params, grads)) {
 *   backward(loss * scaler.getScale());
 *   scaler.step(optimizer);
 *   scaler.update();
 * }
 * }</pre>
 */
public final class GradScaler implements AutoCloseable {
  private NativeScaler handle;
  private final boolean onHost;
  private final CallbackSlot reducer = new CallbackSlot();

  /** A scaler of PyTorch's policy on the device of the gradients. */
  public GradScaler(Context context) {
    this(context, new ScalerOptions());
  }

  /** A scaler of a policy, which is copied. */
  public GradScaler(Context context, ScalerOptions options) {
    NativeMemory.beforeAllocation();
    handle = new NativeScaler(Context.handleOf(context), Check.notNull(options, "options").handle());
    handle.keep(reducer, context.callbacks());
    handle.uses().count(NativeMemory.ofScaler(options.historyCapacity()));
    onHost = context.deviceType() == DeviceType.CPU;
  }

  private NativeScaler handle() {
    return Check.open(handle, GradScaler.class);
  }

  // gen-api: calls gsc_scaler

  // gen-api: overload
  /** As {@link #scale(Tensor[], Tensor[], long)} of one tensor. */
  public void scale(Tensor src, Tensor dst, long stream) {
    scale(new Tensor[] {src}, new Tensor[] {dst}, stream);
  }

  /** As {@link #clipGradNorm(TensorList, double, Norm, long)} with the L2 norm. */
  public void clipGradNorm(TensorList grads, double maxNorm) {
    clipGradNorm(grads, maxNorm, Norm.L2);
  }

  // gen-api: overload
  /**
   * The next slice of step, for programs with a frame rate. It reads and writes at most maxBytes, which is at least 1,
   * but at least one chunk of up to 65536 elements. Returns the bytes that are left, 0 when the step is done. Errors:
   * BadStateException if stepped by other calls since the last update.
   */
  public long stepSlice(Optimizer optimizer, long maxBytes, long stream) {
    return handle().stepSlice(Check.notNull(optimizer, "optimizer").handle(), maxBytes, stream);
  }

  // gen-api: overload
  /**
   * For your own optimizer: whether to apply the step; if not, it must be skipped. Blocks. Errors: BadStateException if
   * stepped, or if a clipGradValue is waiting.
   */
  public boolean shouldStep(TensorList grads, long stream) {
    return handle().shouldStep(TensorList.handleOf(grads, "grads"), stream) != 0;
  }

  /** Returns a list to READY as if it had not been checked. The scale and the gradients stay as they are. */
  public void discard(TensorList grads) {
    handle().discard(TensorList.handleOf(grads, "grads"));
  }

  /** Returns all lists to READY as if they had not been checked. */
  public void discardAll() {
    handle().discard(null);
  }

  // gen-api: overload
  /** The scale as of the work enqueued so far; 1 if disabled. Blocks on a CUDA device. */
  public float getScale(long stream) {
    return handle().getScale(stream);
  }

  /** Whether the scaler does anything, as in the options. */
  public boolean isEnabled() {
    return handle().isEnabled() != 0;
  }

  /** As {@link #report(TensorList, long)} of all lists of the last update. */
  public Report report() {
    return report(null, 0);
  }

  /** As {@link #report(TensorList, long)}. */
  public Report report(TensorList grads) {
    return report(Check.notNull(grads, "grads"), 0);
  }

  /**
   * The scaler's state now, and what the last check of a list found, after the work on a stream; null: of all lists of
   * the last update. Blocks. Errors: BadStateException for a list that this scaler never checked; ScaleFloorException,
   * which carries the report, under {@link FloorAction#ERROR}.
   */
  public Report report(@Nullable TensorList grads, long stream) {
    final NativeScaler scaler = handle();
    try (NativeReport report = new NativeReport()) {
      try {
        scaler.getReport(grads == null ? null : grads.handle(), report, stream);
      } catch (ScaleFloorException e) {
        throw e.with(new Report(report));
      }
      return new Report(report);
    }
  }

  /**
   * As {@link #report(TensorList, long)} without waiting: enqueues the copy and never throws {@link
   * ScaleFloorException}. On a CUDA device `out` is pinned memory; it has the report when the stream has passed this
   * point.
   */
  public void readReportAsync(@Nullable TensorList grads, ReportBuffer out, long stream) {
    if (!Check.notNull(out, "out").isPinned() && !onHost) {
      throw new InvalidArgumentException("out is not pinned memory: use ReportBuffer.at");
    }
    handle().readReportAsync(grads == null ? null : grads.handle(), out.address(), stream);
    java.lang.ref.Reference.reachabilityFence(out);
  }

  /**
   * Joins the ranks of a job, on the CPU, by the all-reduce of each check: if one overflows all skip, and clipping uses
   * the norm over all. null: none. Errors: UnsupportedException on a CUDA device, where {@link #setDeviceReducer} is
   * to be used; BadStateException if a list was checked since the last update.
   */
  public void setReducer(@Nullable Reducer sum) {
    if (!onHost) {
      throw new UnsupportedException("the gradients are on a CUDA device: use setDeviceReducer");
    }
    setDeviceReducer(sum == null ? null : CallbackSlot.onHost(sum));
  }

  /** As {@link #setReducer} on memory of the device. */
  public void setDeviceReducer(@Nullable DeviceReducer sum) {
    final NativeScaler scaler = handle();
    final long slot = sum == null ? 0 : reducer.number();
    scaler.uses().call(address -> NativeCallsJNI.setReducer(scaler, address, slot));
    reducer.reducer = sum;
  }

  // gen-api: overload
  /** The updates still kept, oldest first. Blocks. */
  public List<HistoryEntry> history(long stream) {
    final List<HistoryEntry> entries = new ArrayList<>();
    try (NativeHistory history = handle().history(stream)) {
      final long count = history.count();
      for (long i = 0; i < count; i++) {
        try (NativeHistoryEntry entry = history.get(i)) {
          entries.add(new HistoryEntry(entry));
        }
      }
    }
    return entries;
  }

  /** Addresses of the scaler's device scalars, of a list too if one is given. Valid as long as the scaler. */
  public DeviceState deviceState(@Nullable TensorList grads) {
    final NativeScaler scaler = handle();
    try (NativeDeviceState state = new NativeDeviceState()) {
      scaler.deviceState(grads == null ? null : grads.handle(), state);
      return new DeviceState(state);
    }
  }

  // gen-api: overload
  /** Everything a checkpoint needs. Blocks. Errors: BadStateException if the scaler is disabled. */
  public ScalerState getState(long stream) {
    final ScalerState state = new ScalerState();
    handle().getState(state.handle(), stream);
    return state;
  }

  /** A copy of the policy now. */
  public ScalerOptions getOptions() {
    final ScalerOptions options = new ScalerOptions();
    handle().getOptions(options.handle());
    return options;
  }

  /** The growthFactor of the policy. */
  public double getGrowthFactor() {
    return handle().getGrowthFactor();
  }

  // gen-api: overload
  /** Changes the growthFactor of the policy, greater than 1. */
  public void setGrowthFactor(double value, long stream) {
    handle().setGrowthFactor(value, stream);
  }

  /** The backoffFactor of the policy. */
  public double getBackoffFactor() {
    return handle().getBackoffFactor();
  }

  // gen-api: overload
  /** Changes the backoffFactor of the policy, in (0, 1). */
  public void setBackoffFactor(double value, long stream) {
    handle().setBackoffFactor(value, stream);
  }

  /** The growthInterval of the policy. */
  public int getGrowthInterval() {
    return handle().getGrowthInterval();
  }

  // gen-api: overload
  /** Changes the growthInterval of the policy, at least 1. */
  public void setGrowthInterval(int value, long stream) {
    handle().setGrowthInterval(value, stream);
  }

  /** Such as {@code GradScaler(scale 65536.0)}. Blocks on a CUDA device. */
  @Override
  public String toString() {
    try {
      return isEnabled() ? "GradScaler(scale " + getScale() + ")" : "GradScaler(disabled)";
    } catch (BadStateException e) {
      return "GradScaler(closed)";
    }
  }

  /** Destroys it after the calls in progress on other threads. Does nothing the second time. */
  @Override
  public void close() {
    final NativeScaler was = handle;
    handle = null;
    if (was != null) {
      was.close();
    }
  }
}
