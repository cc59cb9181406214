// SPDX-License-Identifier: Apache-2.0
// Stub to compile the samples against. Signatures: JCuda 12.6.0, jcuda.runtime.cudaStream_t.
package jcuda.runtime;

import jcuda.NativePointerObject;

public class cudaStream_t extends NativePointerObject {
  static final long serialVersionUID = 1;

  private cudaStream_t() {
    super(null);
  }
}
