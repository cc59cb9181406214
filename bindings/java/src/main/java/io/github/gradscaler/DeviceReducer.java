// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** All-reduce with sum over the ranks of a job, in place on memory of the device: for NCCL and the like. */
@FunctionalInterface
public interface DeviceReducer {
  /**
   * Replaces each value by its sum over all ranks. On a CUDA device it enqueues the work; on the CPU it has finished
   * when it returns. It is called on the thread that checks or steps. Every rank calls it the same number of times in
   * the same order. values: address of the doubles; valid during the call and the work it enqueues. stream: CUDA stream
   * to enqueue on; 0 on the CPU. An exception becomes the cause of the exception of the call.
   */
  void sum(long values, long count, long stream) throws Exception;
}
