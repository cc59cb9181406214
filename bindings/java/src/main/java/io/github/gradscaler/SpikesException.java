// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Gradient norms stay above their limit. Only with {@link SpikeAction#ERROR}, and only from reading a report. */
public final class SpikesException extends ReportException {
  private static final long serialVersionUID = 1;

  SpikesException(String message, FailedArgument argument) {
    super(Status.SPIKES, message, argument);
  }
}
