// SPDX-License-Identifier: Apache-2.0
// Stub to compile the samples against. Signatures: JavaCPP Presets for PyTorch, org.bytedeco.pytorch.Tensor.
package org.bytedeco.pytorch;

public abstract class Tensor extends TensorBase {}
