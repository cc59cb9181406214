// SPDX-License-Identifier: Apache-2.0
// Stub to compile the samples against. Signatures: ND4J 1.0.0-M2.1, org.nd4j.jita.allocator.impl.AtomicAllocator.
package org.nd4j.jita.allocator.impl;

import org.bytedeco.javacpp.Pointer;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.jcublas.context.CudaContext;

public abstract class AtomicAllocator {
  public static AtomicAllocator getInstance() {
    throw new UnsupportedOperationException();
  }

  public abstract CudaContext getDeviceContext();

  public abstract Pointer getPointer(INDArray array, CudaContext context);

  public abstract void tickDeviceWrite(INDArray array);
}
