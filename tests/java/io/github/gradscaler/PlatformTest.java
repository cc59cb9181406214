// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.*;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** The loader asks for the natives by the names of the table that the build is held to (platforms.cmake). */
class PlatformTest {
  @TestFactory
  Stream<DynamicTest> table() throws IOException {
    final List<String> rows = Files.readAllLines(Path.of(System.getProperty("gradscaler.test.platforms"))).stream()
        .filter(line -> !line.startsWith("#")).collect(Collectors.toList());
    assertTrue(rows.size() >= 10);
    return rows.stream().map(row -> DynamicTest.dynamicTest(row, () -> {
      final String[] cells = row.split("\\|");
      assertEquals(cells[3].trim(), Platform.name(cells[1].trim(), cells[2].trim()));
    }));
  }

  @Test
  void theBuildsOwnIsFound() {
    final String resource = "io/github/gradscaler/natives/" + Platform.current() + "/"
        + System.mapLibraryName("gradscaler_jni");
    assertNotNull(PlatformTest.class.getClassLoader().getResource(resource), resource);
  }
}
