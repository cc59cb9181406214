// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/**
 * What the memory of a list's tensors belongs to. Shared by the list and the optimizers made of it: what they step on is
 * exchanged with what the list points at.
 */
final class Owners {
  private final Object[] owners;
  /** Those of memory that can go although its owner is kept; null if there are none, which is the rule. */
  private Lifetime[] lifetimes;

  Owners(Tensor[] tensors) {
    owners = new Object[tensors.length];
    set(tensors);
  }

  void set(Tensor[] tensors) {
    Lifetime[] found = null;
    for (int i = 0; i < tensors.length; i++) {
      owners[i] = tensors[i].owner();
      if (tensors[i].lifetime() != null) {
        found = found == null ? new Lifetime[tensors.length] : found;
        found[i] = tensors[i].lifetime();
      }
    }
    lifetimes = found;
  }

  int count() {
    return owners.length;
  }

  Object get(int index) {
    return owners[index];
  }

  void requireUsable() {
    if (lifetimes != null) {
      for (int i = 0; i < lifetimes.length; i++) {
        Lifetime.requireUsable(lifetimes[i], "tensors[" + i + "]");
      }
    }
  }
}
