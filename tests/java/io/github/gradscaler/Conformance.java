// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/** The conformance files that every language reads; a system property says where they are. */
final class Conformance {
  private Conformance() {}

  static Map<String, Object> read(Path path) throws IOException {
    return Json.parse(Files.readString(path));
  }

  static Path path(String name) {
    return Path.of(System.getProperty("gradscaler.test.conformance"), name);
  }

}
