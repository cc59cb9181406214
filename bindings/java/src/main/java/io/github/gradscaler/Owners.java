// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/**
 * What the memory of a list's tensors belongs to. Shared by the list and the optimizers made of it: what they step on is
 * exchanged with what the list points at.
 */
final class Owners {
  private final Object[] owners;
  /** Those of memory that can go although its owner is kept; null if there are none, which is the rule. */
  private Object[] segments;

  Owners(Tensor[] tensors) {
    owners = new Object[tensors.length];
    set(tensors);
  }

  void set(Tensor[] tensors) {
    Object[] found = null;
    for (int i = 0; i < tensors.length; i++) {
      owners[i] = tensors[i].owner();
      if (tensors[i].segment() != null) {
        found = found == null ? new Object[tensors.length] : found;
        found[i] = tensors[i].segment();
      }
    }
    segments = found;
  }

  int count() {
    return owners.length;
  }

  void requireUsable() {
    if (segments != null) {
      for (int i = 0; i < segments.length; i++) {
        MemorySegments.requireUsable(segments[i], "tensors[" + i + "]");
      }
    }
  }
}
