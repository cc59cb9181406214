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

  // gen-api: calls gsc_optimizer

  /** A copy of the hyper-parameters of a group. */
  public OptimizerOptions getOptions(int group) {
    final OptimizerOptions options = new OptimizerOptions(OptimizerKind.ADAMW);
    handle().getOptions(group, options.handle());
    return options;
  }

  // gen-api: overload
  /** Sets a group's learning rate, finite and at least 0, from the next step on. */
  public void setLr(int group, double lr, long stream) {
    handle().setLr(group, lr, stream);
    deviceLrs.remove(group);
  }

  // gen-api: overload
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
          Tensor.at(scales, Tensor.scaleCount(state.count()), DType.FP8_E8M0, optimizer));
    }
  }

  // gen-api: overload
  /** Steps applied so far. Blocks on a CUDA device. */
  public long stepsApplied(long stream) {
    return handle().stepsApplied(stream);
  }

  // gen-api: overload
  /** Steps skipped so far. Blocks on a CUDA device. */
  public long stepsSkipped(long stream) {
    return handle().stepsSkipped(stream);
  }

  // gen-api: overload
  /**
   * Elements whose parameter an applied step left as it was, summed over the steps; 0 without the flag COUNT_UNCHANGED.
   * Blocks on a CUDA device.
   */
  public long unchanged(long stream) {
    return handle().unchanged(stream);
  }

  // gen-api: overload
  /** Steps applied so far in which each tensor was present. Blocks on a CUDA device. */
  public long[] tensorSteps(long stream) {
    try (NativeNumbers numbers = handle().tensorSteps(stream)) {
      return Numbers.array(numbers);
    }
  }

  // gen-api: overload
  /**
   * Writes the step counts and all state tensors to host memory: a direct buffer with saveSize() bytes remaining, whose
   * position stays. Blocks.
   */
  public void save(ByteBuffer buffer, long stream) {
    handle().save(remaining(buffer, false), stream);
  }

  // gen-api: overload
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
