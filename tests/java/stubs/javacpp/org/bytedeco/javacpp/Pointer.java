// SPDX-License-Identifier: Apache-2.0
// Stub to compile the samples against. Signatures: JavaCPP 1.5.13, org.bytedeco.javacpp.Pointer.
package org.bytedeco.javacpp;

public abstract class Pointer {
  /** The address of element 0, whatever the position is. */
  public abstract long address();

  public abstract long position();

  public abstract long limit();

  public abstract int sizeof();
}
