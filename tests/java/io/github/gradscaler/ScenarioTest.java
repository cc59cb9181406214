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

/** The scenarios that every language runs, each as a test. */
class ScenarioTest {
  @TestFactory
  Stream<DynamicTest> scenarios() throws IOException {
    final Map<String, Object> file = Json.read(Json.path("scenarios.json"));
    assertEquals(1.0, file.get("format"));
    final List<Object> scenarios = Json.list(file.get("scenarios"));
    assertFalse(scenarios.isEmpty());
    return scenarios.stream().map(Json::object).map(
        s -> DynamicTest.dynamicTest((String) s.get("name"), () -> holds(s)));
  }

  private static void holds(Map<String, Object> scenario) {
    final List<Object> events = Json.list(scenario.get("events"));
    assertFalse(events.isEmpty());
    try (ScenarioWorld world = new ScenarioWorld(scenario)) {
      for (int i = 0; i < events.size(); i++) {
        final Map<String, Object> event = Json.object(events.get(i));
        world.act(event, "event " + i + " (" + event.get("do") + ")");
      }
    }
  }
}
