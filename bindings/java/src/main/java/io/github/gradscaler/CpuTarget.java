// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Instruction sets of the CPU kernels. Every one gives the same bits. */
public enum CpuTarget {
  /** The best this processor and this build have. */
  BEST(NativeCalls.CPU_BEST),
  /** What every processor of the architecture has. */
  BASELINE(NativeCalls.CPU_BASELINE),
  /** AVX2, FMA and F16C. */
  AVX2(NativeCalls.CPU_AVX2),
  /** AVX-512 F, BW, DQ and VL. */
  AVX512(NativeCalls.CPU_AVX512);

  private final int code;

  CpuTarget(int code) {
    this.code = code;
  }

  int code() {
    return code;
  }

  static CpuTarget of(int code) {
    for (CpuTarget value : values()) {
      if (value.code == code) {
        return value;
      }
    }
    throw new IllegalStateException("no CpuTarget " + code);
  }
}
