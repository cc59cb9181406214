// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Hyper-parameters of an {@link Optimizer}. Start as the defaults of the kind. */
public final class OptimizerOptions {
  private final NativeOptimizerOptions handle;

  /** The defaults of a kind. */
  public OptimizerOptions(OptimizerKind kind) {
    handle = new NativeOptimizerOptions(Check.notNull(kind, "kind").code());
  }

  // gen-api: kinds gsc_optimizer_options

  NativeOptimizerOptions handle() {
    return handle;
  }

  /** The kind of optimizer. */
  public OptimizerKind kind() {
    return OptimizerKind.of(handle.getKind());
  }

  // gen-api: accessors gsc_optimizer_options
}
