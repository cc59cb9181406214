// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** The scenario files that every language runs, each a test of its own. */
class ScenarioTest {
  @TestFactory
  Stream<DynamicTest> scenarios() throws IOException {
    return Conformance.each("scenarios", ScenarioTest::holds);
  }

  private static void holds(Map<String, Object> file) {
    assertEquals(1.0, file.get("format"));
    final List<Object> events = Json.list(file.get("events"));
    assertFalse(events.isEmpty());
    try (ScenarioWorld world = new ScenarioWorld(file)) {
      for (int i = 0; i < events.size(); i++) {
        final Map<String, Object> event = Json.object(events.get(i));
        world.act(event, "event " + i + " (" + event.get("do") + ")");
      }
    }
  }
}
