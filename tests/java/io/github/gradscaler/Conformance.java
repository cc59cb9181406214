// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.assertFalse;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;

/** The files under tests/conformance that every language reads; a system property says where they are. */
final class Conformance {
  private Conformance() {}

  /** What a test does with the content of a file. */
  interface Check {
    void holds(Map<String, Object> file) throws Exception;
  }

  static Map<String, Object> read(Path path) throws IOException {
    return Json.parse(Files.readString(path));
  }

  static Path path(String name) {
    return Path.of(System.getProperty("gradscaler.test.conformance"), name);
  }

  /** One test for each file in a folder. */
  static Stream<DynamicTest> each(String folder, Check check) throws IOException {
    final List<Path> files;
    try (Stream<Path> all = Files.list(path(folder))) {
      files = all.filter(f -> f.toString().endsWith(".json")).sorted().collect(Collectors.toList());
    }
    assertFalse(files.isEmpty());
    return files.stream().map(f -> DynamicTest.dynamicTest(f.getFileName().toString(), () -> check.holds(read(f))));
  }
}
