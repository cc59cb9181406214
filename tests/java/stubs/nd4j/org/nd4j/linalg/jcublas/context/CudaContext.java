// SPDX-License-Identifier: Apache-2.0
// Stub to compile the samples against. Signatures: ND4J 1.0.0-M2.1, org.nd4j.linalg.jcublas.context.CudaContext.
package org.nd4j.linalg.jcublas.context;

public class CudaContext {}
