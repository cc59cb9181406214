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

  /**
   * A scaler of PyTorch's policy.
   *
   * @param context the device of the gradients
   */
  public GradScaler(Context context) {
    this(context, new ScalerOptions());
  }

  /**
   * A scaler of a policy.
   *
   * @param context the device of the gradients
   * @param options the policy; copied
   * @throws InvalidArgumentException naming the option
   */
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

  // gen-api: overload
  /**
   * dst = src * scale, rounded to nearest even; dtypes may differ. For the loss or the first gradient.
   *
   * @param src what to multiply
   * @param dst where to write it; may be the same memory
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void scale(Tensor src, Tensor dst, long stream) {
    scale(new Tensor[] {src}, new Tensor[] {dst}, stream);
  }

  // gen-api: overload
  /**
   * dst[i] = src[i] * scale, rounded to nearest even; dtypes may differ.
   *
   * @param src what to multiply
   * @param dst where to write it, of equal counts
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void scale(Tensor[] src, Tensor[] dst, long stream) {
    final NativeScaler scaler = handle();
    try (NativeTensorArray from = Tensor.array(src, "src");
        NativeTensorArray to = Tensor.array(dst, "dst")) {
      scaler.scale(from, to, stream);
    }
  }

  // gen-api: overload
  /**
   * Multiplies the gradients by 1 / scale in place, and records whether any is inf or NaN, and their norms.
   *
   * @param grads list of gradients
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @throws BadStateException if already unscaled or stepped since the last update
   */
  public void unscale(TensorList grads, long stream) {
    handle().unscale(TensorList.handleOf(grads, "grads"), stream);
  }

  // gen-api: overload
  /**
   * Records the same as unscale without writing the gradients; step then folds the unscaling in.
   *
   * @param grads list of gradients
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @throws BadStateException unless the list is ready
   */
  public void check(TensorList grads, long stream) {
    handle().check(TensorList.handleOf(grads, "grads"), stream);
  }

  // gen-api: overload
  /**
   * The same as check for some of the tensors, while a backward pass still makes the others.
   *
   * @param grads list of gradients
   * @param first index of the first tensor
   * @param count number of tensors
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @throws BadStateException if a tensor was checked already
   */
  public void checkRange(TensorList grads, long first, long count, long stream) {
    handle().checkRange(TensorList.handleOf(grads, "grads"), first, count, stream);
  }

  // gen-api: overload
  /**
   * Limits the norm of the unscaled gradients, by PyTorch's rule. Folded into step unless the list is unscaled.
   *
   * @param grads list of gradients
   * @param maxNorm finite, at least 0
   * @param norm which norm
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @throws BadStateException after step, or after another clip in this iteration
   */
  public void clipGradNorm(TensorList grads, double maxNorm, Norm norm, long stream) {
    handle().clipGradNorm(TensorList.handleOf(grads, "grads"), maxNorm, Check.notNull(norm, "norm").code(), stream);
  }

  /**
   * Limits the L2 norm of the unscaled gradients, by PyTorch's rule.
   *
   * @param grads list of gradients
   * @param maxNorm finite, at least 0
   */
  public void clipGradNorm(TensorList grads, double maxNorm) {
    clipGradNorm(grads, maxNorm, Norm.L2);
  }

  // gen-api: overload
  /**
   * Clamps every unscaled gradient, after clipGradNorm if both are used. NaN stays NaN.
   *
   * @param grads list of gradients
   * @param clipValue at least 0
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @throws BadStateException after step
   */
  public void clipGradValue(TensorList grads, double clipValue, long stream) {
    handle().clipGradValue(TensorList.handleOf(grads, "grads"), clipValue, stream);
  }

  // gen-api: overload
  /**
   * Checks the gradients if need be; if all are finite unscales, clips and applies them in one pass, else skips the
   * step.
   *
   * @param optimizer whose gradients and parameters
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @throws BadStateException if stepped since the last update
   */
  public void step(Optimizer optimizer, long stream) {
    handle().step(Check.notNull(optimizer, "optimizer").handle(), stream);
  }

  // gen-api: overload
  /**
   * The next slice of step, for programs with a frame rate. It reads and writes at most maxBytes, but at least one
   * chunk of up to 65536 elements.
   *
   * @param optimizer whose gradients and parameters
   * @param maxBytes at least 1
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @return the bytes that are left, 0 when the step is done
   * @throws BadStateException if stepped by other calls since the last update
   */
  public long stepSlice(Optimizer optimizer, long maxBytes, long stream) {
    return handle().stepSlice(Check.notNull(optimizer, "optimizer").handle(), maxBytes, stream);
  }

  // gen-api: overload
  /**
   * For your own optimizer: whether to apply the step. Blocks.
   *
   * @param grads list of gradients
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @return false if the step must be skipped
   * @throws BadStateException if stepped, or if a clipGradValue is waiting
   */
  public boolean shouldStep(TensorList grads, long stream) {
    return handle().shouldStep(TensorList.handleOf(grads, "grads"), stream) != 0;
  }

  // gen-api: overload
  /**
   * Ends the iteration: backs the scale off after an overflow, else counts a clean step and perhaps grows.
   *
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @throws BadStateException if no list was checked since the last update
   */
  public void update(long stream) {
    handle().update(stream);
  }

  // gen-api: overload
  /**
   * Step and update in one call.
   *
   * @param optimizer the only one of the loop
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void stepAndUpdate(Optimizer optimizer, long stream) {
    handle().stepAndUpdate(Check.notNull(optimizer, "optimizer").handle(), stream);
  }

  /**
   * Returns a list to READY as if it had not been checked. The scale and the gradients stay as they are.
   *
   * @param grads list of gradients
   */
  public void discard(TensorList grads) {
    handle().discard(TensorList.handleOf(grads, "grads"));
  }

  /**
   * Returns all lists to READY as if they had not been checked.
   */
  public void discardAll() {
    handle().discard(null);
  }

  // gen-api: overload
  /**
   * Replaces the scale, as PyTorch's update(new_scale). All lists return to ready.
   *
   * @param scale finite, greater than 0
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void setScale(float scale, long stream) {
    handle().setScale(scale, stream);
  }

  // gen-api: overload
  /**
   * The scale as of the work enqueued so far; 1 if disabled. Blocks on a CUDA device.
   *
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @return the scale
   */
  public float getScale(long stream) {
    return handle().getScale(stream);
  }

  /**
   * Whether the scaler does anything.
   *
   * @return as in the options
   */
  public boolean isEnabled() {
    return handle().isEnabled() != 0;
  }

  /**
   * The scaler's state now, and the last update's gradients over all lists. Blocks.
   *
   * @return a new report
   * @throws ScaleFloorException under {@link FloorAction#ERROR}; it carries the report
   */
  public Report report() {
    return report(null, 0);
  }

  /**
   * The scaler's state now, and what the last check of a list found. Blocks.
   *
   * @param grads a list that this scaler has checked
   * @return a new report
   * @throws BadStateException if it never has
   */
  public Report report(TensorList grads) {
    return report(Check.notNull(grads, "grads"), 0);
  }

  /**
   * As {@link #report()} or {@link #report(TensorList)}, after the work on a stream.
   *
   * @param grads null: all lists of the last update
   * @param stream a CUDA stream
   * @return a new report
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
   * ScaleFloorException}.
   *
   * @param grads null: all lists of the last update
   * @param out pinned memory on a CUDA device; its report is there when the stream has passed this point
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void readReportAsync(@Nullable TensorList grads, ReportBuffer out, long stream) {
    if (!Check.notNull(out, "out").isPinned() && !onHost) {
      throw new InvalidArgumentException("out is not pinned memory: use ReportBuffer.at");
    }
    handle().readReportAsync(grads == null ? null : grads.handle(), out.address(), stream);
    java.lang.ref.Reference.reachabilityFence(out);
  }

  /**
   * Joins the ranks of a job, on the CPU: if one overflows all skip, and clipping uses the norm over all.
   *
   * @param sum the all-reduce of each check; null: none
   * @throws UnsupportedException on a CUDA device: use {@link #setDeviceReducer}
   * @throws BadStateException if a list was checked since the last update
   */
  public void setReducer(@Nullable Reducer sum) {
    if (!onHost) {
      throw new UnsupportedException("the gradients are on a CUDA device: use setDeviceReducer");
    }
    setDeviceReducer(sum == null ? null : CallbackSlot.onHost(sum));
  }

  /**
   * Joins the ranks of a job: if one overflows all skip, and clipping uses the norm over all.
   *
   * @param sum the all-reduce of each check; null: none
   * @throws BadStateException if a list was checked since the last update
   */
  public void setDeviceReducer(@Nullable DeviceReducer sum) {
    final NativeScaler scaler = handle();
    final long address = scaler.uses().begin();
    try {
      NativeCallsJNI.setReducer(scaler, address, sum == null ? 0 : reducer.number());
      reducer.reducer(sum);
    } finally {
      scaler.uses().end();
    }
  }

  // gen-api: overload
  /**
   * The updates still kept, oldest first. Blocks.
   *
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @return a new list
   */
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

  /**
   * Addresses of the scaler's device scalars.
   *
   * @param grads the list whose device scalars to include; may be null
   * @return valid as long as the scaler
   */
  public DeviceState deviceState(@Nullable TensorList grads) {
    final NativeScaler scaler = handle();
    try (NativeDeviceState state = new NativeDeviceState()) {
      scaler.deviceState(grads == null ? null : grads.handle(), state);
      return new DeviceState(state);
    }
  }

  // gen-api: overload
  /**
   * Everything a checkpoint needs. Blocks.
   *
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @return a new state
   * @throws BadStateException if the scaler is disabled
   */
  public ScalerState getState(long stream) {
    final ScalerState state = new ScalerState();
    handle().getState(state.handle(), stream);
    return state;
  }

  // gen-api: overload
  /**
   * Restores a state, its factors and interval included.
   *
   * @param state what getState returned
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @throws InvalidArgumentException for a foreign state or a value out of range; nothing changes then
   */
  public void setState(ScalerState state, long stream) {
    handle().setState(Check.notNull(state, "state").handle(), stream);
  }

  /**
   * The policy now.
   *
   * @return a copy
   */
  public ScalerOptions getOptions() {
    final ScalerOptions options = new ScalerOptions();
    handle().getOptions(options.handle());
    return options;
  }

  // gen-api: overload
  /**
   * Replaces the policy; scale, trackers and history stay.
   *
   * @param options initScale, enabled and historyCapacity must be as at creation
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void setOptions(ScalerOptions options, long stream) {
    handle().setOptions(Check.notNull(options, "options").handle(), stream);
  }

  /**
   * The growthFactor of the policy.
   *
   * @return greater than 1
   */
  public double getGrowthFactor() {
    return handle().getGrowthFactor();
  }

  // gen-api: overload
  /**
   * Changes the growthFactor of the policy.
   *
   * @param value greater than 1
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void setGrowthFactor(double value, long stream) {
    handle().setGrowthFactor(value, stream);
  }

  /**
   * The backoffFactor of the policy.
   *
   * @return in (0, 1)
   */
  public double getBackoffFactor() {
    return handle().getBackoffFactor();
  }

  // gen-api: overload
  /**
   * Changes the backoffFactor of the policy.
   *
   * @param value in (0, 1)
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void setBackoffFactor(double value, long stream) {
    handle().setBackoffFactor(value, stream);
  }

  /**
   * The growthInterval of the policy.
   *
   * @return at least 1
   */
  public int getGrowthInterval() {
    return handle().getGrowthInterval();
  }

  // gen-api: overload
  /**
   * Changes the growthInterval of the policy.
   *
   * @param value at least 1
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void setGrowthInterval(int value, long stream) {
    handle().setGrowthInterval(value, stream);
  }

  /**
   * A short description, for messages. Blocks on a CUDA device.
   *
   * @return such as {@code GradScaler(scale 65536.0)}
   */
  @Override
  public String toString() {
    try {
      return isEnabled() ? "GradScaler(scale " + getScale() + ")" : "GradScaler(disabled)";
    } catch (BadStateException e) {
      return "GradScaler(closed)";
    }
  }

  /** Destroys the scaler, after the calls that other threads have in progress. Does nothing the second time. */
  @Override
  public void close() {
    final NativeScaler was = handle;
    handle = null;
    if (was != null) {
      was.close();
    }
  }
}
