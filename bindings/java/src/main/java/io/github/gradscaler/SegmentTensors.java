// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Java 22 and later take the class of this name in src/main/java22, with what needs their classes. */
abstract class SegmentTensors {
  SegmentTensors() {}

  /** No arena can close memory. */
  static Lifetime lifetime(Object owner) {
    return null;
  }
}
