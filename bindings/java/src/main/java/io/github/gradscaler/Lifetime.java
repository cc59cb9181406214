// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Of memory that can go although its owner is referred to: that of an arena, or of an optimizer's state. */
interface Lifetime {
  /** Refuses memory that has gone, by a name, with a BadStateException. */
  void requireUsable(String name);

  /** The same where there may be no such memory. */
  static void requireUsable(Lifetime lifetime, String name) {
    if (lifetime != null) {
      lifetime.requireUsable(name);
    }
  }

  /** That of an object's memory, if it can go before the object does; else null. */
  static Lifetime of(Object owner) {
    if (owner instanceof NativeOptimizer) {
      final NativeOptimizer optimizer = (NativeOptimizer) owner;
      return name -> {
        if (optimizer.uses().isClosed()) {
          throw new BadStateException(name + ": the optimizer whose state it is is closed");
        }
      };
    }
    return SegmentTensors.lifetime(owner);
  }
}
