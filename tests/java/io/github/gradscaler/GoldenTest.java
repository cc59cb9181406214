// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.IOException;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/**
 * The golden trajectories of other systems: every update of every recorded run must leave the same fp32 bits. The
 * format is described in tests/conformance/README.md.
 */
class GoldenTest {
  @TestFactory
  Stream<DynamicTest> goldens() throws IOException {
    final List<Path> files;
    try (Stream<Path> all = Files.list(Json.path("goldens"))) {
      files = all.sorted().collect(Collectors.toList());
    }
    assertFalse(files.isEmpty());
    return files.stream().map(
        f -> DynamicTest.dynamicTest(f.getFileName().toString(), () -> sameTrajectory(Json.read(f))));
  }

  private static void sameTrajectory(Map<String, Object> file) {
    final Preset preset = OptionReader.word(Preset.class, file.get("preset"));
    final List<Object> runs = Json.list(file.get("runs"));
    assertFalse(runs.isEmpty(), "a golden without runs proves nothing");
    try (Context context = Context.cpu(1)) {
      for (Object run : runs) {
        replay(context, new ScalerOptions(preset), Json.object(run));
      }
    }
  }

  private static void replay(Context context, ScalerOptions preset, Map<String, Object> run) {
    final String where = run.get("case") + ", seed " + run.get("seed");
    final ScalerOptions options = OptionReader.read(Json.object(run.get("options")), preset);
    final Tensor gradient = Tensor.allocate(DType.FP32, 1);
    final FloatBuffer value = gradient.floats();
    final List<Object> scales = Json.list(run.get("scale"));
    final List<Object> held = Json.list(run.get("held"));
    try (TensorList grads = new TensorList(context, gradient);
        GradScaler scaler = new GradScaler(context, options)) {
      int update = 0;
      int next = 0;
      long left = 0;
      int expected = 0;
      boolean overflow = false;
      for (Object length : Json.list(run.get("overflow"))) {
        for (int i = 0; i < Json.number(length); i++, update++) {
          if (left == 0) {
            expected = bits(scales.get(next));
            left = (long) Json.number(held.get(next++));
          }
          left--;
          value.put(0, overflow ? Float.POSITIVE_INFINITY : 1);
          scaler.check(grads);
          scaler.update();
          final int bits = Float.floatToRawIntBits(scaler.getScale());
          if (bits != expected) {
            fail(String.format("%s: after update %d the bits are %08x, not %08x", where, update, bits, expected));
          }
        }
        overflow = !overflow;
      }
      assertEquals(scales.size(), next, where + ": the run is shorter than its trajectory");
      assertEquals(0, left, where + ": the run is shorter than its trajectory");
    }
  }

  /** A power of two is written by its exponent, anything else by its bits. */
  private static int bits(Object scale) {
    return scale instanceof String ? Integer.parseUnsignedInt((String) scale, 16)
                                   : Float.floatToRawIntBits(Math.scalb(1f, (int) Json.number(scale)));
  }
}
