// SPDX-License-Identifier: Apache-2.0
// Stub to compile the samples against. Signatures: JCuda 12.6.0, jcuda.NativePointerObject.
package jcuda;

import java.io.Serializable;

public abstract class NativePointerObject implements Serializable {
  static final long serialVersionUID = 1;

  protected NativePointerObject(NativePointerObject other) {}

  protected long getNativePointer() {
    throw new UnsupportedOperationException();
  }
}
