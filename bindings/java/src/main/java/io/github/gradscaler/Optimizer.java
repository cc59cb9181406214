// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.lang.ref.Reference;
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
   * An optimizer whose state the library makes, zeroed.
   *
   * @param context the device of all lists
   * @param options the hyper-parameters; copied
   * @param params what is updated: fp32 (or fp64) master weights, or 16-bit weights directly
   * @param grads gradients of any dtype
   * @throws InvalidArgumentException naming list and index: different lengths, counts or contexts, overlap
   */
  public Optimizer(Context context, OptimizerOptions options, TensorList params, TensorList grads) {
    this(context, options, params, grads, null);
  }

  /**
   * An optimizer that also writes 16-bit weights.
   *
   * @param context the device of all lists
   * @param options the hyper-parameters; copied
   * @param params what is updated
   * @param grads gradients of any dtype
   * @param modelCopy receives every updated parameter rounded to its dtype in the same pass; may be null
   * @param state one list per state slot of the kind, which the caller has initialised; none: the library makes them
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
        modelCopy == null ? null : modelCopy.handle(), slots[0], slots[1], slots[2],
        slots[3]);
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
    if (!deviceLrs.isEmpty()) {
      deviceLrs.forEach((group, lr) -> lr.requireUsable("lr of group " + group));
    }
    return optimizer;
  }

  /**
   * Gives some tensors separate hyper-parameters. All groups run in the same pass.
   *
   * @param first index of the first tensor
   * @param count number of tensors
   * @param options of the optimizer's kind and flags
   * @return the number of the group: 1, 2, ...
   * @throws InvalidArgumentException for a range outside of the list or a tensor that already has a group
   */
  public int addGroup(long first, long count, OptimizerOptions options) {
    return handle().addGroup(first, count, Check.notNull(options, "options").handle());
  }

  // gen-api: getters gsc_optimizer

  /**
   * Hyper-parameters of a group.
   *
   * @param group which group
   * @return a copy
   */
  public OptimizerOptions getOptions(int group) {
    final OptimizerOptions options = new OptimizerOptions(OptimizerKind.ADAMW);
    handle().getOptions(group, options.handle());
    return options;
  }

  // gen-api: overload
  /**
   * Replaces the hyper-parameters of a group from the next step on.
   *
   * @param group which group
   * @param options of the same kind and flags
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void setOptions(int group, OptimizerOptions options, long stream) {
    handle().setOptions(group, Check.notNull(options, "options").handle(), stream);
  }

  // gen-api: overload
  /**
   * Sets a group's learning rate from the next step on.
   *
   * @param group which group
   * @param lr finite, at least 0
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void setLr(int group, double lr, long stream) {
    handle().setLr(group, lr, stream);
    deviceLrs.remove(group);
  }

  // gen-api: overload
  /**
   * Takes the parameters of a Schedule-Free optimizer to the averaged weights, or back.
   *
   * @param evaluating whether to evaluate; steps fail meanwhile
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void setEvaluating(boolean evaluating, long stream) {
    handle().setEvaluating(evaluating ? 1 : 0, stream);
  }

  // gen-api: overload
  /**
   * Reads a group's learning rate from device memory at every step.
   *
   * @param group which group
   * @param lr a float in device memory; null returns to the host value
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void setDeviceLr(int group, @Nullable DeviceScalar lr, long stream) {
    handle().setDeviceLr(group, DeviceScalar.floats(lr, "lr"), stream);
    if (lr == null) {
      deviceLrs.remove(group);
    } else {
      deviceLrs.put(group, lr);
    }
  }

  // gen-api: overload
  /**
   * Applies a step without a scaler: no check, no unscaling.
   *
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @throws BadStateException if a scaler has checked the gradients and not unscaled them, or a clip is pending
   */
  public void step(long stream) {
    handle().step(stream);
  }

  // gen-api: overload
  /**
   * Applies a step with your own device scalars: gradients times invScale, skipped if foundInf is not 0.
   *
   * @param invScale a float; null: 1
   * @param foundInf a float; null: 0
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void stepScaled(@Nullable DeviceScalar invScale, @Nullable DeviceScalar foundInf, long stream) {
    handle().stepScaled(DeviceScalar.floats(invScale, "invScale"), DeviceScalar.floats(foundInf, "foundInf"), stream);
    Reference.reachabilityFence(invScale);
    Reference.reachabilityFence(foundInf);
  }

  // gen-api: overload
  /**
   * Zeroes the gradients.
   *
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void zeroGrads(long stream) {
    handle().zeroGrads(stream);
  }

  /**
   * Name of a state slot.
   *
   * @param slot which slot
   * @return such as "exp_avg"
   */
  public String stateName(int slot) {
    return handle().stateName(slot);
  }

  /**
   * A tensor of a state slot. Once the optimizer is closed, every call that would touch the memory is refused with a
   * {@link BadStateException}; a forgotten one lives as long as the tensor.
   *
   * @param slot which slot
   * @param index which tensor
   * @return a new tensor, with its scales if it has codes
   */
  public Tensor stateTensor(int slot, long index) {
    final NativeOptimizer optimizer = handle();
    try (NativeTensor tensor = new NativeTensor()) {
      optimizer.stateTensor(slot, index, tensor);
      final Tensor state = Tensor.borrowed(tensor, optimizer);
      final long scales = optimizer.stateScales(slot, index);
      return scales == 0 ? state : state.withScales(
          Tensor.at(scales, Tensor.scaleCount(state.count()), DType.FP8_E8M0, optimizer));
    }
  }

  // gen-api: overload
  /**
   * Steps applied so far. Blocks on a CUDA device.
   *
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @return the number
   */
  public long stepsApplied(long stream) {
    return handle().stepsApplied(stream);
  }

  // gen-api: overload
  /**
   * Steps skipped so far. Blocks on a CUDA device.
   *
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @return the number
   */
  public long stepsSkipped(long stream) {
    return handle().stepsSkipped(stream);
  }

  // gen-api: overload
  /**
   * Elements whose parameter an applied step left as it was, summed over the steps; 0 without the flag COUNT_UNCHANGED.
   * Blocks on a CUDA device.
   *
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @return the number
   */
  public long unchanged(long stream) {
    return handle().unchanged(stream);
  }

  // gen-api: overload
  /**
   * Sets the numbers of steps, for a restored checkpoint.
   *
   * @param applied at least 0
   * @param skipped at least 0
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void setSteps(long applied, long skipped, long stream) {
    handle().setSteps(applied, skipped, stream);
  }

  // gen-api: overload
  /**
   * Steps applied so far in which each tensor was present. Blocks on a CUDA device.
   *
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @return one number per tensor
   */
  public long[] tensorSteps(long stream) {
    try (NativeNumbers numbers = handle().tensorSteps(stream)) {
      final long[] steps = new long[Math.toIntExact(numbers.count())];
      for (int i = 0; i < steps.length; i++) {
        steps[i] = numbers.get(i);
      }
      return steps;
    }
  }

  // gen-api: overload
  /**
   * Sets the applied steps of each tensor, for a restored checkpoint. The number of applied steps becomes the largest.
   *
   * @param steps one per tensor, at least 0
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void setTensorSteps(long[] steps, long stream) {
    try (NativeNumbers numbers = numbers(steps)) {
      handle().setTensorSteps(numbers, stream);
    }
  }

  // gen-api: overload
  /**
   * Sets where each tensor begins in the whole that this optimizer has a shard of, for stochastic rounding, from the
   * next step on: a shard then draws the random bits that the same elements of the whole draw. They are not saved.
   *
   * @param offsets one per tensor, multiples of 32
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void setOffsets(long[] offsets, long stream) {
    try (NativeNumbers numbers = numbers(offsets)) {
      handle().setOffsets(numbers, stream);
    }
  }

  private static NativeNumbers numbers(long[] values) {
    final NativeNumbers numbers = new NativeNumbers(values.length);
    for (int i = 0; i < values.length; i++) {
      numbers.set(i, values[i]);
    }
    return numbers;
  }

  // gen-api: overload
  /**
   * Writes the step counts and all state tensors to host memory. Blocks.
   *
   * @param buffer direct, with saveSize() bytes remaining; its position stays
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   */
  public void save(ByteBuffer buffer, long stream) {
    handle().save(remaining(buffer, false), stream);
  }

  // gen-api: overload
  /**
   * Restores what save wrote, converted from the state format and the masters of the optimizer that wrote it. On error
   * nothing changes. Blocks.
   *
   * @param buffer direct, with exactly what save wrote remaining; its position stays
   * @param stream CUDA stream to enqueue on; ignored on the CPU
   * @throws InvalidArgumentException for truncated or foreign data, another kind, other counts or dtypes
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

  /**
   * A short description, for messages.
   *
   * @return such as {@code Optimizer(ADAMW, 1 group)}
   */
  @Override
  public String toString() {
    try {
      final int groups = groupCount();
      return "Optimizer(" + getOptions(0).kind() + ", " + groups + (groups == 1 ? " group)" : " groups)");
    } catch (BadStateException e) {
      return "Optimizer(closed)";
    }
  }

  /** Destroys the optimizer, after the calls that other threads have in progress. Does nothing the second time. */
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
