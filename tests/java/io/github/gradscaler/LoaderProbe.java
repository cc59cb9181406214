// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** What a process does whose only concern is whether the library can be loaded. */
final class LoaderProbe {
  private LoaderProbe() {}

  public static void main(String[] args) {
    System.out.println("loaded " + Context.version());
  }
}
