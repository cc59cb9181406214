// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.util.ArrayList;
import java.util.List;

/**
 * The owners of the memory of a list's tensors. The list and the optimizers made of it share this object, so that it
 * changes for all when the list gets other memory.
 */
final class Owners {
  private final Object[] owners;
  private final States states;
  /** Those of memory that can go although its owner is kept; null if there are none, which is the rule. */
  private Lifetime[] lifetimes;

  Owners(Tensor[] tensors) {
    owners = new Object[tensors.length];
    states = new States(tensors);
    copy(tensors);
  }

  void set(Tensor[] tensors) {
    states.set(tensors);
    copy(tensors);
  }

  private void copy(Tensor[] tensors) {
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

  States states() {
    return states;
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

  /**
   * The optimizers whose state is among the memory of some tensors. They are not destroyed before all holders have
   * released them, so that a call in progress may go on with the state of an optimizer that is closed. Refers to no
   * object of the caller.
   */
  static final class States {
    private static final Uses[] NONE = {};
    private Uses[] held = NONE;
    private int holders;

    States(Tensor[] tensors) {
      set(tensors);
    }

    private synchronized void set(Tensor[] tensors) {
      final Uses[] before = held;
      held = begin(tensors);
      end(before);
    }

    synchronized void hold() {
      holders++;
    }

    synchronized void release() {
      if (--holders == 0) {
        end(held);
        held = NONE;
      }
    }

    private static Uses[] begin(Tensor[] tensors) {
      List<Uses> all = null;
      try {
        for (Tensor tensor : tensors) {
          if (tensor.owner() instanceof NativeOptimizer) {
            all = all == null ? new ArrayList<>() : all;
            final Uses uses = ((NativeOptimizer) tensor.owner()).uses();
            uses.begin();
            all.add(uses);
          }
        }
      } catch (BadStateException e) {
        all.forEach(Uses::end);
        throw e;
      }
      return all == null ? NONE : all.toArray(NONE);
    }

    private static void end(Uses[] all) {
      for (Uses uses : all) {
        uses.end();
      }
    }
  }
}
