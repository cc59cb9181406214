// SPDX-License-Identifier: Apache-2.0
// Stub to compile the samples against. Signatures: ND4J 1.0.0-M2.1, org.nd4j.linalg.api.ops.executioner.OpExecutioner.
package org.nd4j.linalg.api.ops.executioner;

public interface OpExecutioner {
  /** Waits for everything that was enqueued. */
  void commit();
}
