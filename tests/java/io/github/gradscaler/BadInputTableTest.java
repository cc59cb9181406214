// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** The table of bad input that every language runs, each row a test. Arguments that only Java has: BadInputTest. */
class BadInputTableTest {
  @TestFactory
  Stream<DynamicTest> rows() throws IOException {
    final Map<String, Object> file = Json.read(Json.path("bad_input.json"));
    assertEquals(1.0, file.get("format"));
    final List<Object> rows = Json.list(file.get("rows"));
    assertFalse(rows.isEmpty());
    return rows.stream().map(row -> DynamicTest.dynamicTest(row.toString(), () -> refused(Json.object(row))));
  }

  private static void refused(Map<String, Object> row) {
    try (BadCalls calls = new BadCalls()) {
      for (Object earlier : Json.list(row.getOrDefault("first", List.of()))) {
        calls.make((String) earlier, null, Map.of());
      }
      final float before = calls.world.weights.floats().get(3);
      final RuntimeException e = assertThrows(RuntimeException.class,
          () -> calls.make((String) row.get("call"), (String) row.get("null"),
              Json.object(row.getOrDefault("with", Map.of()))));
      assertSame(OptionReader.word(Status.class, row.get("status")), ((GradScalerFailure) e).status(), e.getMessage());
      final String says = (String) row.get("says");
      assertTrue(e.getMessage().contains(says), () -> e.getMessage() + " does not say: " + says);
      worksAsBefore(calls.world, before);
    }
  }

  /** A refused call has changed nothing. */
  private static void worksAsBefore(World w, float weight) {
    assertEquals(1024f, w.scaler.getScale());
    w.scaler.discardAll();
    w.fill(1);
    w.scaler.step(w.optimizer);
    w.scaler.update();
    assertEquals(weight - 1, w.weights.floats().get(3));
    assertEquals(1, w.scaler.report().updates());
  }
}
