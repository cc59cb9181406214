// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.util.List;

/**
 * A plan over tensors, validated once and reused every step. Keeps the buffers of its tensors alive, and so does every
 * optimizer made of it, also after the list is closed. Nothing can keep the memory of an arena that is closed: calls on
 * it are then refused with a {@link BadStateException}. Use a list from one thread at a time.
 */
public final class TensorList implements AutoCloseable {
  private NativeTensorList handle;
  private final Owners owners;

  /**
   * Plans work over tensors, perhaps none, on their device. They must not overlap. Errors: InvalidArgumentException
   * naming the tensor: null data, negative count, not aligned, overlap.
   */
  public TensorList(Context context, Tensor... tensors) {
    final NativeContext device = Context.handleOf(context);
    NativeMemory.beforeAllocation();
    try (NativeTensorArray array = Tensor.array(tensors, "tensors")) {
      handle = new NativeTensorList(device, array);
    }
    owners = new Owners(tensors);
    handle.keep(owners, context.callbacks());
    handle.uses().hold(List.of(owners.states()));
    handle.uses().count(NativeMemory.ofList(tensors.length));
  }

  /** As {@link #TensorList(Context, Tensor...)}. */
  public TensorList(Context context, List<Tensor> tensors) {
    this(context, Check.notNull(tensors, "tensors").toArray(new Tensor[0]));
  }

  NativeTensorList handle() {
    final NativeTensorList list = Check.open(handle, TensorList.class);
    owners.requireUsable();
    return list;
  }

  Owners owners() {
    return owners;
  }

  static NativeTensorList handleOf(TensorList list, String name) {
    return Check.notNull(list, name).handle();
  }

  /** Number of tensors. */
  public long count() {
    return handle().count();
  }

  /** A tensor as the list knows it now, which keeps the memory alive as the list does. */
  public Tensor get(long index) {
    final String name = handle().getName(index);
    return owners.get((int) index).named(name.isEmpty() ? null : name);
  }

  /**
   * Points the list at new buffers of the same counts and dtypes. On error it keeps its old ones. Errors:
   * BadStateException if the list was checked or unscaled since the last update.
   */
  public void setTensors(Tensor... tensors) {
    setTensors(tensors, 0);
  }

  /** As {@link #setTensors(Tensor...)}, ordered after the work on a stream. */
  public void setTensors(Tensor[] tensors, long stream) {
    // Not handle(): this is the way out if the old memory has gone.
    final NativeTensorList list = Check.open(handle, TensorList.class);
    try (NativeTensorArray array = Tensor.array(tensors, "tensors")) {
      for (int i = 0; i < tensors.length && i < owners.count(); i++) {
        requireSameShape(i, tensors[i]);
      }
      list.setPointers(array, stream);
    }
    owners.set(tensors);
  }

  /**
   * Multiplies the gradients of the list by a float in device memory too, such as 1 over the number of tokens: a scaler's
   * check, clipping and step, and steps without a scaler, see gradients times inverse scale times factor. It is read at
   * the first check of an iteration. Null: no factor. Errors: BadStateException if the list was checked or unscaled since
   * the last update.
   */
  public void setDeviceFactor(@Nullable DeviceScalar factor) {
    // Not handle(): this is the way out if the memory of the last factor has gone.
    Check.open(handle, TensorList.class).setDeviceFactor(DeviceScalar.floats(factor, "factor"));
    owners.setFactor(factor);
  }

  /**
   * Keeps the L2 norm of every gradient of the list: each check of a scaler writes a double per tensor, of the unscaled
   * gradients before clipping, from the sums that it makes anyway; NaN or inf for a tensor with a NaN or inf, 0 for an
   * absent one. Null: not kept. Errors: BadStateException if the list was checked or unscaled since the last update.
   */
  public void setDeviceNorms(@Nullable DeviceScalar norms) {
    Check.open(handle, TensorList.class)
        .setDeviceNorms(DeviceScalar.doubles(norms, owners.count(), "norms"), owners.count());
    owners.setNorms(norms);
  }

  // gen-api: overload
  /** As {@link #setPresent(boolean[], long)} on the default stream. */
  public void setPresent(boolean... present) {
    setPresent(present, 0);
  }
  // gen-api: end

  /**
   * Sets which tensors of a list of gradients take part from now on. An absent one counts as empty: it is neither read
   * nor written, and its parameter, state and step count stay as they are. Errors: BadStateException if the list was
   * checked or unscaled since the last update, or has no gradients.
   */
  public void setPresent(boolean[] present, long stream) {
    try (NativeNumbers numbers = new NativeNumbers(present.length)) {
      for (int i = 0; i < present.length; i++) {
        numbers.set(i, present[i] ? 1 : 0);
      }
      handle().setPresent(numbers, stream);
    }
  }

  /** The library takes addresses only, so that it cannot see a shorter buffer. */
  private void requireSameShape(int index, Tensor tensor) {
    final Tensor old = owners.get(index);
    if (old.count() != tensor.count() || old.dtype() != tensor.dtype()) {
      throw new InvalidArgumentException("tensors[" + index + "] has count " + tensor.count() + " and dtype "
          + tensor.dtype() + ", the list has " + old.count() + " and " + old.dtype());
    }
    if (old.scaleAddress() != tensor.scaleAddress()) {
      throw new InvalidArgumentException("tensors[" + index + "] has other scales than the list: make a new list");
    }
  }

  // gen-api: overload
  /** As {@link #diagnose(long)} on the default stream. */
  public Diagnosis diagnose() {
    return diagnose(0);
  }
  // gen-api: end

  /** Counts what is in every element of every tensor. Blocks. */
  public Diagnosis diagnose(long stream) {
    return new Diagnosis(handle().diagnose(stream));
  }

  /** Such as {@code TensorList(2 tensors)}. */
  @Override
  public String toString() {
    return handle == null ? "TensorList(closed)" : "TensorList(" + owners.count() + " tensors)";
  }

  /** Closes it after the calls in progress on other threads. Does nothing the second time. */
  @Override
  public void close() {
    final NativeTensorList was = handle;
    handle = null;
    if (was != null) {
      was.close();
    }
  }
}
