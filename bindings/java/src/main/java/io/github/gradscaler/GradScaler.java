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
  /** As {@link #scale(Tensor[], Tensor[], long)} on the default stream. */
  public void scale(Tensor[] src, Tensor[] dst) {
    scale(src, dst, 0);
  }

  /**
   * Multiplies by the scale on the device: dst[i] = src[i] * scale for each pair of tensors, such as the loss or the
   * first gradient of the backward pass. src[i] and dst[i] have the same number of elements; their dtypes may differ,
   * and they may be the same buffer. Computed in fp32 (fp64 if either is fp64) and rounded to nearest even. Overflow
   * is not checked here. Disabled scaler: a copy.
   */
  public void scale(Tensor[] src, Tensor[] dst, long stream) {
    final NativeScaler self = handle();
    try (NativeTensorArray srcArray = Tensor.array(src, "src"); NativeTensorArray dstArray = Tensor.array(dst, "dst")) {
      self.scale(srcArray, dstArray, stream);
    }
  }

  /** As {@link #step(Optimizer, long)} on the default stream. */
  public void step(Optimizer optimizer) {
    step(optimizer, 0);
  }

  /**
   * The fused step. Checks the optimizer's gradients unless they have been checked. If all are finite, unscales,
   * clips and applies them in one pass. Otherwise, or if their norm is a spike by skipNorm or spikeFactor, parameters
   * and state keep their bits, and the step counts as skipped. Any stage -&gt; STEPPED. Errors: {@link
   * BadStateException} if stepped since the last update; {@link BadStateException} if the optimizer converts fp64
   * gradients to fp32 and was created after their check; {@link InvalidArgumentException} if one object is on the CPU
   * and the other on a CUDA device.
   */
  public void step(Optimizer optimizer, long stream) {
    final NativeScaler self = handle();
    self.step(Check.notNull(optimizer, "optimizer").handle(), stream);
  }

  /** As {@link #update(long)} on the default stream. */
  public void update() {
    update(0);
  }

  /**
   * Ends the iteration. Backs the scale off if a list checked since the last update had an inf or NaN. If none had,
   * but the norm of one was a spike, the scale and its trackers stay. Otherwise counts a clean step and, after
   * growthInterval of them, grows the scale. Adds an entry to the history. All lists -&gt; READY. Disabled scaler:
   * returns all lists to READY and does nothing else. Errors: {@link BadStateException} if no list was checked,
   * unscaled or stepped since the last update, or if {@link GradScaler#checkRange} has checked only part of one.
   */
  public void update(long stream) {
    final NativeScaler self = handle();
    self.update(stream);
  }

  /** As {@link #stepAndUpdate(Optimizer, long)} on the default stream. */
  public void stepAndUpdate(Optimizer optimizer) {
    stepAndUpdate(optimizer, 0);
  }

  /**
   * {@link GradScaler#step} and {@link GradScaler#update} in one call, for loops with a single optimizer. Saves a
   * kernel launch. Errors: those of both; {@link InvalidArgumentException} if the optimizer and the scaler are of
   * different contexts.
   */
  public void stepAndUpdate(Optimizer optimizer, long stream) {
    final NativeScaler self = handle();
    self.stepAndUpdate(Check.notNull(optimizer, "optimizer").handle(), stream);
  }

  /** As {@link #unscale(TensorList, long)} on the default stream. */
  public void unscale(TensorList grads) {
    unscale(grads, 0);
  }

  /**
   * Unscales the gradients in place, in one pass. Records their norms, and whether any is inf or NaN before or after
   * unscaling. The norms are those of the exact products, before they are rounded to the gradients' dtype. Call this
   * if your code reads the gradients; otherwise {@link GradScaler#step} unscales. READY or CHECKED -&gt; UNSCALED.
   * Disabled scaler: leaves the gradients as they are. Errors: {@link BadStateException} if already unscaled or
   * stepped since the last update. If the message ends with "discard it", the device failed after it had written
   * gradients: the list then accepts only {@link GradScaler#discard}.
   */
  public void unscale(TensorList grads, long stream) {
    final NativeScaler self = handle();
    self.unscale(TensorList.handleOf(grads, "grads"), stream);
  }

  /** As {@link #check(TensorList, long)} on the default stream. */
  public void check(TensorList grads) {
    check(grads, 0);
  }

  /**
   * Records what {@link GradScaler#unscale} records and only reads the gradients; {@link GradScaler#step} then
   * unscales in its own pass. Call it to overlap the check with other work. READY -&gt; CHECKED. Disabled scaler:
   * does nothing. Errors: {@link BadStateException} unless READY.
   */
  public void check(TensorList grads, long stream) {
    final NativeScaler self = handle();
    self.check(TensorList.handleOf(grads, "grads"), stream);
  }

  /** As {@link #clipGradNorm(TensorList, double, Norm, long)} on the default stream. */
  public void clipGradNorm(TensorList grads, double maxNorm, Norm norm) {
    clipGradNorm(grads, maxNorm, norm, 0);
  }

  /**
   * Limits the norm of the unscaled gradients to maxNorm: g *= min(1, maxNorm / (norm + 1e-6)), PyTorch's rule. The
   * report of the list has the norm. norm is {@link Norm#L2} or {@link Norm#INF}. Call it before {@link
   * GradScaler#step}, which clips in its own pass: nothing runs now. On an UNSCALED list the gradients are rewritten
   * now, with the norm that unscale recorded. Gradients of a list with an inf or NaN stay as they are. Disabled
   * scaler: clips with scale 1. Errors: {@link InvalidArgumentException} if maxNorm is negative or not finite; {@link
   * BadStateException} after step, or after another {@link GradScaler#clipGradNorm} or {@link
   * GradScaler#clipGradValue} in this iteration; {@link UnsupportedException} for {@link Norm#INF} with a reducer.
   */
  public void clipGradNorm(TensorList grads, double maxNorm, Norm norm, long stream) {
    final NativeScaler self = handle();
    self.clipGradNorm(TensorList.handleOf(grads, "grads"), maxNorm, Check.notNull(norm, "norm").code(), stream);
  }

  /** As {@link #clipGradValue(TensorList, double, long)} on the default stream. */
  public void clipGradValue(TensorList grads, double clipValue) {
    clipGradValue(grads, clipValue, 0);
  }

  /**
   * Clamps every unscaled gradient to [-clipValue, clipValue], after {@link GradScaler#clipGradNorm} if both are
   * used. NaN stays NaN. {@link GradScaler#step} clamps in its own pass; on an UNSCALED list the gradients are
   * rewritten now. Errors: {@link InvalidArgumentException} if clipValue is negative or NaN; {@link
   * BadStateException} after step.
   */
  public void clipGradValue(TensorList grads, double clipValue, long stream) {
    final NativeScaler self = handle();
    self.clipGradValue(TensorList.handleOf(grads, "grads"), clipValue, stream);
  }

  /** As {@link #checkRange(TensorList, long, long, long)} on the default stream. */
  public void checkRange(TensorList grads, long first, long count) {
    checkRange(grads, first, count, 0);
  }

  /**
   * Checks only tensors [first, first + count), while the backward pass still computes the others. The list becomes
   * CHECKED when all tensors are; {@link GradScaler#step} and {@link GradScaler#check} check the remaining ones.
   * Errors: as {@link GradScaler#check}; {@link InvalidArgumentException} for a range outside the list; {@link
   * BadStateException} if a tensor is already checked.
   */
  public void checkRange(TensorList grads, long first, long count, long stream) {
    final NativeScaler self = handle();
    self.checkRange(TensorList.handleOf(grads, "grads"), first, count, stream);
  }

  /** As {@link #setState(ScalerState, long)} on the default stream. */
  public void setState(ScalerState state) {
    setState(state, 0);
  }

  /**
   * Restores a state with its factors and interval. Validates all of it first. All lists -&gt; READY; clears the
   * history. Disabled scaler: does nothing. Errors: {@link InvalidArgumentException} for a truncated or foreign
   * state, a value out of range, or a hysteresisTracker above the scaler's hysteresis: set the options first.
   */
  public void setState(ScalerState state, long stream) {
    final NativeScaler self = handle();
    self.setState(Check.notNull(state, "state").handle(), stream);
  }

  /** As {@link #setOptions(ScalerOptions, long)} on the default stream. */
  public void setOptions(ScalerOptions options) {
    setOptions(options, 0);
  }

  /**
   * Replaces the options. Scale, trackers and history stay; a hysteresis tracker above the new hysteresis is lowered
   * to it. initScale, enabled and historyCapacity must be as at creation.
   */
  public void setOptions(ScalerOptions options, long stream) {
    final NativeScaler self = handle();
    self.setOptions(Check.notNull(options, "options").handle(), stream);
  }

  /** As {@link #setScale(float, long)} on the default stream. */
  public void setScale(float scale) {
    setScale(scale, 0);
  }

  /**
   * Replaces the scale (finite, &gt; 0), as PyTorch's update(new_scale). Keeps the growth tracker and ignores
   * minScale and maxScale. All lists -&gt; READY. Disabled scaler: does nothing.
   */
  public void setScale(float scale, long stream) {
    final NativeScaler self = handle();
    self.setScale(scale, stream);
  }
  // gen-api: end

  // gen-api: overload
  /** As {@link #scale(Tensor, Tensor, long)} on the default stream. */
  public void scale(Tensor src, Tensor dst) {
    scale(src, dst, 0);
  }
  // gen-api: end

  /** As {@link #scale(Tensor[], Tensor[], long)} of one tensor. */
  public void scale(Tensor src, Tensor dst, long stream) {
    scale(new Tensor[] {src}, new Tensor[] {dst}, stream);
  }

  /** As {@link #clipGradNorm(TensorList, double, Norm, long)} with the L2 norm. */
  public void clipGradNorm(TensorList grads, double maxNorm) {
    clipGradNorm(grads, maxNorm, Norm.L2);
  }

  // gen-api: overload
  /** As {@link #stepSlice(Optimizer, long, long)} on the default stream. */
  public long stepSlice(Optimizer optimizer, long maxBytes) {
    return stepSlice(optimizer, maxBytes, 0);
  }
  // gen-api: end

  /**
   * The next slice of step, for programs with a frame rate. It reads and writes at most maxBytes, which is at least 1,
   * but at least one chunk of up to 65536 elements. Returns the bytes that are left, 0 when the step is done. Errors:
   * BadStateException if stepped by other calls since the last update.
   */
  public long stepSlice(Optimizer optimizer, long maxBytes, long stream) {
    return handle().stepSlice(Check.notNull(optimizer, "optimizer").handle(), maxBytes, stream);
  }

  // gen-api: overload
  /** As {@link #shouldStep(TensorList, long)} on the default stream. */
  public boolean shouldStep(TensorList grads) {
    return shouldStep(grads, 0);
  }
  // gen-api: end

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
  /** As {@link #getScale(long)} on the default stream. */
  public float getScale() {
    return getScale(0);
  }
  // gen-api: end

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
   * the last update. Blocks. Errors: BadStateException for a list that this scaler never checked; ScaleFloorException
   * under {@link FloorAction#ERROR} and SpikesException under {@link SpikeAction#ERROR}, which carry the report.
   */
  public Report report(@Nullable TensorList grads, long stream) {
    final NativeScaler scaler = handle();
    try (NativeReport report = new NativeReport()) {
      try {
        scaler.getReport(grads == null ? null : grads.handle(), report, stream);
      } catch (ReportException e) {
        throw e.with(new Report(report));
      }
      return new Report(report);
    }
  }

  /**
   * As {@link #report(TensorList, long)} without waiting: enqueues the copy and never throws {@link ReportException}.
   * On a CUDA device `out` is pinned memory; it has the report when the stream has passed this point.
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
  /** As {@link #history(long)} on the default stream. */
  public List<HistoryEntry> history() {
    return history(0);
  }
  // gen-api: end

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
  /** As {@link #getState(long)} on the default stream. */
  public ScalerState getState() {
    return getState(0);
  }
  // gen-api: end

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
  /** As {@link #setGrowthFactor(double, long)} on the default stream. */
  public void setGrowthFactor(double value) {
    setGrowthFactor(value, 0);
  }
  // gen-api: end

  /** Changes the growthFactor of the policy, greater than 1. */
  public void setGrowthFactor(double value, long stream) {
    handle().setGrowthFactor(value, stream);
  }

  /** The backoffFactor of the policy. */
  public double getBackoffFactor() {
    return handle().getBackoffFactor();
  }

  // gen-api: overload
  /** As {@link #setBackoffFactor(double, long)} on the default stream. */
  public void setBackoffFactor(double value) {
    setBackoffFactor(value, 0);
  }
  // gen-api: end

  /** Changes the backoffFactor of the policy, in (0, 1). */
  public void setBackoffFactor(double value, long stream) {
    handle().setBackoffFactor(value, stream);
  }

  /** The growthInterval of the policy. */
  public int getGrowthInterval() {
    return handle().getGrowthInterval();
  }

  // gen-api: overload
  /** As {@link #setGrowthInterval(int, long)} on the default stream. */
  public void setGrowthInterval(int value) {
    setGrowthInterval(value, 0);
  }
  // gen-api: end

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
