// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The tensors of a list, and with them the owners of their memory. The list and the optimizers made of it share this
 * object, so that it changes for all when the list gets other memory.
 */
final class Owners {
  private final States states;
  private Tensor[] tensors;
  /** Whether there is memory that can go although its owner is kept, which is rare. */
  private boolean canGo;
  /** The factor of the gradients, or null. */
  private DeviceScalar factor;
  /** Where norms of the tensors are written, or null. */
  private DeviceScalar norms;

  Owners(Tensor[] tensors) {
    states = new States(tensors);
    copy(tensors);
  }

  void set(Tensor[] others) {
    states.set(others);
    copy(others);
  }

  void setFactor(DeviceScalar factor) {
    this.factor = factor;
  }

  void setNorms(DeviceScalar norms) {
    this.norms = norms;
  }

  private void copy(Tensor[] others) {
    tensors = others.clone();
    canGo = Arrays.stream(tensors).anyMatch(Tensor::canGo);
  }

  States states() {
    return states;
  }

  int count() {
    return tensors.length;
  }

  Tensor get(int index) {
    return tensors[index];
  }

  void requireUsable() {
    for (int i = 0; canGo && i < tensors.length; i++) {
      tensors[i].requireUsable("tensors[" + i + "]");
    }
    if (factor != null) {
      factor.requireUsable("the device factor");
    }
    if (norms != null) {
      norms.requireUsable("the device norms");
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
          for (Tensor part = tensor; part != null; part = part.scales()) {
            if (part.owner() instanceof NativeOptimizer) {
              all = all == null ? new ArrayList<>() : all;
              final Uses uses = ((NativeOptimizer) part.owner()).uses();
              uses.beginShared();
              all.add(uses);
            }
          }
        }
      } catch (BadStateException e) {
        all.forEach(Uses::endShared);
        throw e;
      }
      return all == null ? NONE : all.toArray(NONE);
    }

    private static void end(Uses[] all) {
      for (Uses uses : all) {
        uses.endShared();
      }
    }
  }
}
