// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** What happened in an iteration. From {@link GradScaler#report()}. */
public final class Report {
  // gen-api: values gsc_report

  @Override
  public String toString() {
    return "Report[scale=" + scale + ", overflow=" + overflow + ", gradNorm=" + gradNorm + ", updates=" + updates
        + ", skipped=" + skipped
        + (firstTensor < 0 ? "" : ", nonfiniteCount=" + nonfiniteCount + ", firstTensor=" + firstTensor
            + ", firstElement=" + firstElement) + "]";
  }
}
