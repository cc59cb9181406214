// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

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

  /**
   * Reads what {@link #toBytes()} wrote, also that of an older version, which may be shorter. Errors:
   * InvalidArgumentException for other data, and for a longer state of a newer version.
   */
  public static ScalerState fromBytes(byte[] bytes) {
    final ScalerState result = new ScalerState();
    final ByteBuffer memory = result.memory().order(ByteOrder.nativeOrder());
    final int length = Check.notNull(bytes, "bytes").length;
    // A state begins with its length. What is not in it stays 0.
    if (length < 4 || length > memory.capacity() || memory.put(bytes).getInt(0) != length) {
      throw new InvalidArgumentException(
          "bytes has length " + length + "; it is not a state, or not one of this version, which has "
              + memory.capacity());
    }
    memory.putInt(0, memory.capacity());
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
