// SPDX-License-Identifier: Apache-2.0
// Stub to compile the samples against. Signatures: JavaCPP Presets for PyTorch, org.bytedeco.pytorch.TensorBase.
package org.bytedeco.pytorch;

import org.bytedeco.javacpp.Pointer;

public abstract class TensorBase extends Pointer {
  public abstract Pointer data_ptr();

  public abstract long numel();

  public abstract long element_size();

  public abstract boolean is_contiguous();
}
