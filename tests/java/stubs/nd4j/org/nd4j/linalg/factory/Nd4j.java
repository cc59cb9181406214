// SPDX-License-Identifier: Apache-2.0
// Stub to compile the samples against. Signatures: ND4J 1.0.0-M2.1, org.nd4j.linalg.factory.Nd4j.
package org.nd4j.linalg.factory;

import org.nd4j.linalg.api.ops.executioner.OpExecutioner;

public class Nd4j {
  public static OpExecutioner getExecutioner() {
    throw new UnsupportedOperationException();
  }
}
