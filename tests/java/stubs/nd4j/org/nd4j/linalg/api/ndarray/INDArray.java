// SPDX-License-Identifier: Apache-2.0
// Stub to compile the samples against. Signatures: ND4J 1.0.0-M2.1, org.nd4j.linalg.api.ndarray.INDArray.
package org.nd4j.linalg.api.ndarray;

import org.nd4j.linalg.api.buffer.DataBuffer;
import org.nd4j.linalg.api.buffer.DataType;

public interface INDArray {
  DataBuffer data();

  DataType dataType();

  long length();

  boolean isView();
}
