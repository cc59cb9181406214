// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.util.Locale;

/** The one name of a system and a processor, such as linux-x86_64: the folder in a jar of natives and its classifier. */
final class Platform {
  private Platform() {}

  static String current() {
    return name(System.getProperty("os.name"), System.getProperty("os.arch"));
  }

  /** As cmake/java_platform.cmake names it; tests/java/platforms.txt holds both to the same names. */
  static String name(String osName, String osArch) {
    final String os = osName.toLowerCase(Locale.ROOT);
    final String system = os.startsWith("windows") ? "windows" : os.startsWith("mac") ? "macos" : os.replace(" ", "");
    final String arch = osArch.toLowerCase(Locale.ROOT);
    final String processor = arch.equals("amd64") || arch.equals("x64") ? "x86_64"
        : arch.equals("arm64") ? "aarch64"
        : arch.matches("i[3-6]86") ? "x86"
        : arch;
    return system + "-" + processor;
  }
}
