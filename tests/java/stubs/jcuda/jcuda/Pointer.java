// SPDX-License-Identifier: Apache-2.0
// Stub to compile the samples against. Signatures: JCuda 12.6.0, jcuda.Pointer.
package jcuda;

public class Pointer extends NativePointerObject {
  static final long serialVersionUID = 1;

  protected Pointer(Pointer other) {
    super(other);
  }

  /** Not part of the native pointer: what withByteOffset added. */
  protected long getByteOffset() {
    throw new UnsupportedOperationException();
  }
}
