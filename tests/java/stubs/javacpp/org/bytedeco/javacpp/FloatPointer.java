// SPDX-License-Identifier: Apache-2.0
// Stub to compile the samples against. Signatures: JavaCPP 1.5.13, org.bytedeco.javacpp.FloatPointer.
package org.bytedeco.javacpp;

public abstract class FloatPointer extends Pointer {}
