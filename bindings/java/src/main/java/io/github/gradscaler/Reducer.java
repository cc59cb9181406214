// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** All-reduce with sum over the ranks of a job, for gradients in host memory. */
@FunctionalInterface
public interface Reducer {
  /**
   * Replaces each value by its sum over all ranks. Called on the thread that checks or steps; every rank calls it the
   * same number of times in the same order. An exception becomes the cause of the exception of the call.
   */
  void sum(double[] values) throws Exception;
}
