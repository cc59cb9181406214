// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * AdamW, SGD or another kind over a list of parameters and a list of gradients. Keeps the lists and their
 * buffers alive, also after the lists are closed. Close it: the state that it makes is as large as the parameters or
 * larger, and the collector does not see it. Use it from one thread at a time.
 */
public final class Optimizer implements AutoCloseable {
  private NativeOptimizer handle;
  private Map<Integer, DeviceScalar> deviceLrs = new HashMap<>();
  private List<Owners> lists = new ArrayList<>();

  /**
   * An optimizer whose state the library makes, zeroed. The hyper-parameters are copied. `params` are fp32 (or fp64)
   * master weights, or 16-bit weights directly; `grads` may be of any dtype. Errors: InvalidArgumentException naming
   * list and index: different lengths, counts or contexts, overlap.
   */
  public Optimizer(Context context, OptimizerOptions options, TensorList params, TensorList grads) {
    this(context, options, params, grads, null);
  }

  /**
   * An optimizer that also writes 16-bit weights: modelCopy receives every updated parameter rounded to its dtype in the
   * same pass. `state` has one list per slot of the kind, which the caller has initialised; none: the library makes them.
   */
  public Optimizer(Context context, OptimizerOptions options, TensorList params, TensorList grads,
      @Nullable TensorList modelCopy, TensorList... state) {
    if (Check.notNull(state, "state").length > 4) {
      throw new InvalidArgumentException("state has " + state.length + " lists, no optimizer has more than 4 slots");
    }
    final NativeTensorList[] slots = new NativeTensorList[4];
    for (int i = 0; i < state.length; i++) {
      slots[i] = TensorList.handleOf(state[i], "state[" + i + "]");
    }
    NativeMemory.beforeAllocation();
    handle = new NativeOptimizer(Context.handleOf(context), Check.notNull(options, "options").handle(),
        TensorList.handleOf(params, "params"), TensorList.handleOf(grads, "grads"),
        modelCopy == null ? null : modelCopy.handle(), slots[0], slots[1], slots[2], slots[3]);
    lists.add(params.owners());
    lists.add(grads.owners());
    if (modelCopy != null) {
      lists.add(modelCopy.owners());
    }
    for (TensorList slot : state) {
      lists.add(slot.owners());
    }
    handle.keep(lists, deviceLrs, context.callbacks());
    handle.uses().hold(lists.stream().map(Owners::states).collect(Collectors.toList()));
    handle.uses().count(NativeMemory.ofOptimizer(state.length == 0 ? handle.saveSize() : 0));
  }

  NativeOptimizer handle() {
    final NativeOptimizer optimizer = Check.open(handle, Optimizer.class);
    for (Owners owners : lists) {
      owners.requireUsable();
    }
    deviceLrs.forEach((group, lr) -> lr.requireUsable("lr of group " + group));
    return optimizer;
  }

  /**
   * Gives tensors [first, first + count) separate hyper-parameters, of the optimizer's kind and flags, and returns the
   * number of the group: 1, 2, ... All groups run in the same pass. Errors: InvalidArgumentException for a range outside
   * of the list or a tensor that already has a group.
   */
  public int addGroup(long first, long count, OptimizerOptions options) {
    return handle().addGroup(first, count, Check.notNull(options, "options").handle());
  }

  // gen-api: getters gsc_optimizer
  /** Number of groups, &gt;= 1. */
  public int groupCount() {
    return handle().groupCount();
  }

  /** 1 while the parameters are the averaged weights, else 0. */
  public int evaluating() {
    return handle().evaluating();
  }

  /** Number of state slots. */
  public int stateCount() {
    return handle().stateCount();
  }

  /** Bytes that {@link Optimizer#save} writes. */
  public long saveSize() {
    return handle().saveSize();
  }
  // gen-api: end

  // gen-api: calls gsc_optimizer
  /** As {@link #zeroGrads(long)} on the default stream. */
  public void zeroGrads() {
    zeroGrads(0);
  }

  /** Sets the gradients to zero. With {@link OptimizerOptions#zeroGrads} the step does it in its own pass. */
  public void zeroGrads(long stream) {
    final NativeOptimizer self = handle();
    self.zeroGrads(stream);
  }

  /** As {@link #step(long)} on the default stream. */
  public void step() {
    step(0);
  }

  /**
   * Steps without a scaler: no check, no unscaling. Errors: {@link BadStateException} if a scaler has checked or
   * stepped on the gradients and not unscaled them, or if a clip is pending. After {@link GradScaler#shouldStep} the
   * call is allowed: then you unscale the gradients.
   */
  public void step(long stream) {
    final NativeOptimizer self = handle();
    self.step(stream);
  }

  /** As {@link #stepScaled(DeviceScalar, DeviceScalar, long)} on the default stream. */
  public void stepScaled(@Nullable DeviceScalar invScale, @Nullable DeviceScalar foundInf) {
    stepScaled(invScale, foundInf, 0);
  }

  /**
   * Steps with your own device scalars, for frameworks that keep the scaler's state themselves. Gradients are
   * multiplied by invScale (NULL: 1). The step is skipped if foundInf is not 0 (NULL: 0). Errors: as {@link
   * Optimizer#step}, but with invScale the gradients may have been checked. Unless foundInf skips the step, a
   * negative, inf or NaN invScale is {@link InvalidArgumentException} on the CPU; on a CUDA device the step is
   * skipped.
   */
  public void stepScaled(@Nullable DeviceScalar invScale, @Nullable DeviceScalar foundInf, long stream) {
    final NativeOptimizer self = handle();
    self.stepScaled(DeviceScalar.floats(invScale, "invScale"), DeviceScalar.floats(foundInf, "foundInf"), stream);
    java.lang.ref.Reference.reachabilityFence(invScale);
    java.lang.ref.Reference.reachabilityFence(foundInf);
  }

  /** As {@link #setOptions(int, OptimizerOptions, long)} on the default stream. */
  public void setOptions(int group, OptimizerOptions options) {
    setOptions(group, options, 0);
  }

  /**
   * Replaces the hyper-parameters of a group from the next step on, stream-ordered. Kind and flags must stay the
   * same. A momentum of 0 must stay 0, and one above 0 must stay above 0. initialAccumulatorValue is ignored.
   */
  public void setOptions(int group, OptimizerOptions options, long stream) {
    final NativeOptimizer self = handle();
    self.setOptions(group, Check.notNull(options, "options").handle(), stream);
  }

  /** As {@link #setEvaluating(boolean, long)} on the default stream. */
  public void setEvaluating(boolean evaluating) {
    setEvaluating(evaluating, 0);
  }

  /**
   * Takes the parameters of a Schedule-Free optimizer, and model copies, to the averaged weights (1), or back to
   * those at which gradients are taken (0), stream-ordered. Evaluate and save models in between. Does nothing if they
   * are there. Writes parameters, their remainders and model copies alone, and rounds to nearest. Tensors that have
   * not taken a step stay as they are, and so do parameters that are inf or NaN. While evaluating, steps fail with
   * {@link BadStateException}. Errors: {@link InvalidArgumentException} for another kind of optimizer, or a value
   * other than 0 and 1.
   */
  public void setEvaluating(boolean evaluating, long stream) {
    final NativeOptimizer self = handle();
    self.setEvaluating(evaluating ? 1 : 0, stream);
  }

  /** As {@link #setSteps(long, long, long)} on the default stream. */
  public void setSteps(long applied, long skipped) {
    setSteps(applied, skipped, 0);
  }

  /**
   * Sets the step counts, 0..2^53 each, when you restore a checkpoint. Every tensor has then taken the applied steps,
   * by which bias corrections go.
   */
  public void setSteps(long applied, long skipped, long stream) {
    final NativeOptimizer self = handle();
    self.setSteps(applied, skipped, stream);
  }

  /** As {@link #setTensorSteps(long[], long)} on the default stream. */
  public void setTensorSteps(long... steps) {
    setTensorSteps(steps, 0);
  }

  /**
   * Sets the applied steps of each tensor, 0..2^53. The optimizer's count of applied steps becomes the largest;
   * skipped steps stay. `steps` has one number per tensor, in host memory. The first call of an optimizer allocates;
   * capture graphs after it, since a graph captured before counts a step for every tensor.
   */
  public void setTensorSteps(long[] steps, long stream) {
    final NativeOptimizer self = handle();
    try (NativeNumbers stepsArray = Numbers.of(steps)) {
      self.setTensorSteps(stepsArray, stream);
    }
  }

  /** As {@link #setOffsets(long[], long)} on the default stream. */
  public void setOffsets(long... offsets) {
    setOffsets(offsets, 0);
  }

  /**
   * Sets where each tensor begins in the whole that its optimizer has a shard of, for stochastic rounding, from the
   * next step on, stream-ordered. `offsets` has one number per tensor, in host memory: multiples of 32, 0..2^53, by
   * which a shard draws the random bits that the same elements of the whole draw. They are not saved. Default: the
   * number of elements in the tensors before it, each rounded up to a multiple of 32.
   */
  public void setOffsets(long[] offsets, long stream) {
    final NativeOptimizer self = handle();
    try (NativeNumbers offsetsArray = Numbers.of(offsets)) {
      self.setOffsets(offsetsArray, stream);
    }
  }
  // gen-api: end

  /** A copy of the hyper-parameters of a group. */
  public OptimizerOptions getOptions(int group) {
    final OptimizerOptions options = new OptimizerOptions(OptimizerKind.ADAMW);
    handle().getOptions(group, options.handle());
    return options;
  }

  // gen-api: overload
  /** As {@link #setLr(int, double, long)} on the default stream. */
  public void setLr(int group, double lr) {
    setLr(group, lr, 0);
  }
  // gen-api: end

  /** Sets a group's learning rate, finite and at least 0, from the next step on. */
  public void setLr(int group, double lr, long stream) {
    handle().setLr(group, lr, stream);
    deviceLrs.remove(group);
  }

  // gen-api: overload
  /** As {@link #setDeviceLr(int, DeviceScalar, long)} on the default stream. */
  public void setDeviceLr(int group, @Nullable DeviceScalar lr) {
    setDeviceLr(group, lr, 0);
  }
  // gen-api: end

  /** Reads a group's learning rate from a float in device memory at every step; null returns to the host value. */
  public void setDeviceLr(int group, @Nullable DeviceScalar lr, long stream) {
    handle().setDeviceLr(group, DeviceScalar.floats(lr, "lr"), stream);
    if (lr == null) {
      deviceLrs.remove(group);
    } else {
      deviceLrs.put(group, lr);
    }
  }

  /** Name of a state slot, such as "exp_avg". */
  public String stateName(int slot) {
    return handle().stateName(slot);
  }

  /**
   * A tensor of a state slot, with its scales if it has codes. Once the optimizer is closed, every call that would touch
   * the memory is refused with a {@link BadStateException}; a forgotten one lives as long as the tensor.
   */
  public Tensor stateTensor(int slot, long index) {
    final NativeOptimizer optimizer = handle();
    try (NativeTensor tensor = new NativeTensor()) {
      optimizer.stateTensor(slot, index, tensor);
      final Tensor state = Tensor.borrowed(tensor, optimizer);
      final long scales = optimizer.stateScales(slot, index);
      return scales == 0 ? state : state.withScales(
          Tensor.at(scales, Tensor.scaleCount(state.count()), state.scaleDType(), optimizer));
    }
  }

  // gen-api: overload
  /** As {@link #stepsApplied(long)} on the default stream. */
  public long stepsApplied() {
    return stepsApplied(0);
  }
  // gen-api: end

  /** Steps applied so far. Blocks on a CUDA device. */
  public long stepsApplied(long stream) {
    return handle().stepsApplied(stream);
  }

  // gen-api: overload
  /** As {@link #stepsSkipped(long)} on the default stream. */
  public long stepsSkipped() {
    return stepsSkipped(0);
  }
  // gen-api: end

  /** Steps skipped so far. Blocks on a CUDA device. */
  public long stepsSkipped(long stream) {
    return handle().stepsSkipped(stream);
  }

  // gen-api: overload
  /** As {@link #unchanged(long)} on the default stream. */
  public long unchanged() {
    return unchanged(0);
  }
  // gen-api: end

  /**
   * Elements whose parameter an applied step left as it was, summed over the steps; 0 without the flag COUNT_UNCHANGED.
   * Blocks on a CUDA device.
   */
  public long unchanged(long stream) {
    return handle().unchanged(stream);
  }

  // gen-api: overload
  /** As {@link #tensorSteps(long)} on the default stream. */
  public long[] tensorSteps() {
    return tensorSteps(0);
  }
  // gen-api: end

  /** Steps applied so far in which each tensor was present. Blocks on a CUDA device. */
  public long[] tensorSteps(long stream) {
    try (NativeNumbers numbers = handle().tensorSteps(stream)) {
      return Numbers.array(numbers);
    }
  }

  // gen-api: overload
  /** As {@link #save(ByteBuffer, long)} on the default stream. */
  public void save(ByteBuffer buffer) {
    save(buffer, 0);
  }
  // gen-api: end

  /**
   * Writes the step counts and all state tensors to host memory: a direct buffer with saveSize() bytes remaining, whose
   * position stays. Blocks.
   */
  public void save(ByteBuffer buffer, long stream) {
    handle().save(remaining(buffer, false), stream);
  }

  // gen-api: overload
  /** As {@link #load(ByteBuffer, long)} on the default stream. */
  public void load(ByteBuffer buffer) {
    load(buffer, 0);
  }
  // gen-api: end

  /**
   * Restores what save wrote, which a direct buffer has remaining, and nothing more; its position stays. It is converted
   * from the state format and the masters of the optimizer that wrote it. Blocks. Errors: InvalidArgumentException for
   * truncated or foreign data, another kind, other counts or dtypes; nothing changes then.
   */
  public void load(ByteBuffer buffer, long stream) {
    handle().load(remaining(buffer, true), stream);
  }

  private static ByteBuffer remaining(ByteBuffer buffer, boolean readOnlyAllowed) {
    if (!Check.notNull(buffer, "buffer").isDirect()) {
      throw new InvalidArgumentException("buffer is not a direct buffer");
    }
    if (buffer.isReadOnly() && !readOnlyAllowed) {
      throw new InvalidArgumentException("buffer is read-only");
    }
    Lifetime.requireUsable(Lifetime.of(buffer), "buffer");
    return buffer.slice();
  }

  /** Such as {@code Optimizer(ADAMW, 1 group)}. */
  @Override
  public String toString() {
    try {
      final int groups = groupCount();
      return "Optimizer(" + getOptions(0).kind() + ", " + groups + (groups == 1 ? " group)" : " groups)");
    } catch (BadStateException e) {
      return "Optimizer(closed)";
    }
  }

  /** Destroys it after the calls in progress on other threads. Does nothing the second time. */
  @Override
  public void close() {
    final NativeOptimizer was = handle;
    handle = null;
    if (was != null) {
      was.close();
      // Not cleared: a call in progress goes on with them.
      lists = List.of();
      deviceLrs = new HashMap<>();
    }
  }
}
