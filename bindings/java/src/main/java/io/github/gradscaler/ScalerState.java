// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.nio.ByteBuffer;

/**
 * Everything a checkpoint needs of a {@link GradScaler}: to be written field by field, or as the library's bytes, which
 * every language reads. Checked when it is restored.
 */
public final class ScalerState {
  private final NativeScalerState handle;

  /** A state whose fields are all to be set. */
  public ScalerState() {
    handle = new NativeScalerState();
  }

  /** Reads what {@link #toBytes()} wrote. Errors: InvalidArgumentException if it has another length. */
  public static ScalerState fromBytes(byte[] bytes) {
    final ScalerState result = new ScalerState();
    final ByteBuffer memory = result.memory();
    if (Check.notNull(bytes, "bytes").length != memory.capacity()) {
      throw new InvalidArgumentException(
          "bytes has length " + bytes.length + ", a state has " + memory.capacity());
    }
    memory.put(bytes);
    java.lang.ref.Reference.reachabilityFence(result);
    return result;
  }

  /** The state as the library lays it out. */
  public byte[] toBytes() {
    final ByteBuffer memory = memory();
    final byte[] bytes = new byte[memory.capacity()];
    memory.get(bytes);
    java.lang.ref.Reference.reachabilityFence(this);
    return bytes;
  }

  private ByteBuffer memory() {
    return NativeCallsJNI.stateBytes(NativeScalerState.getCPtr(handle));
  }

  NativeScalerState handle() {
    return handle;
  }

  // gen-api: accessors gsc_scaler_state
}
