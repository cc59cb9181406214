// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static io.github.gradscaler.OptionReader.read;
import static io.github.gradscaler.OptionReader.word;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.nio.DoubleBuffer;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What a scenario file acts on: one scaler, and for each list of gradients its parameters and an SGD optimizer with
 * learning rate 1. The format is described in tests/conformance/README.md.
 */
final class ScenarioWorld implements AutoCloseable {
  private final Context context = Context.cpu(1);
  private final Map<String, Lists> lists = new LinkedHashMap<>();
  private final Map<String, ScalerState> saved = new HashMap<>();
  private final Map<String, Object> options;
  private GradScaler scaler;
  private Boolean apply;

  private final class Lists {
    final Tensor[] gradients;
    final Tensor[] weights;
    final TensorList grads;
    final Optimizer optimizer;

    Lists(DType dtype, List<Object> counts) {
      gradients = allocate(dtype, counts);
      weights = allocate(DType.FP32, counts);
      grads = new TensorList(context, gradients);
      optimizer = new Optimizer(context, OptimizerOptions.sgd().lr(1), new TensorList(context, weights), grads);
    }
  }

  ScenarioWorld(Map<String, Object> file) {
    options = Json.object(file.get("scaler"));
    scaler = new GradScaler(context, read(options, new ScalerOptions()));
    if (!file.containsKey("lists")) {
      lists.put("model", new Lists(DType.FP32, List.of((Object) 4.0)));
      return;
    }
    Json.object(file.get("lists")).forEach((name, description) -> {
      final Map<String, Object> d = Json.object(description);
      lists.put(name, new Lists(word(DType.class, d.get("dtype")), Json.list(d.get("counts"))));
    });
  }

  private static Tensor[] allocate(DType dtype, List<Object> counts) {
    return counts.stream().map(c -> Tensor.allocate(dtype, ((Double) c).intValue())).toArray(Tensor[]::new);
  }

  void act(Map<String, Object> event, String where) {
    Status status = null;
    try {
      perform(event);
    } catch (RuntimeException e) {
      if (!(e instanceof GradScalerFailure)) {
        throw e;
      }
      status = ((GradScalerFailure) e).status();
    }
    final Object expected = event.getOrDefault("status", "ok");
    if (expected.equals("ok")) {
      assertNull(status, where);
    } else {
      assertEquals(word(Status.class, expected), status, where);
    }
    if (event.containsKey("expect")) {
      Json.object(event.get("expect")).forEach((key, value) -> judge(key, value, where + ": " + key));
    }
  }

  private Lists list(Map<String, Object> event) {
    if (!event.containsKey("list") && lists.size() != 1) {
      throw new IllegalArgumentException("missing list");
    }
    final Lists found = event.containsKey("list") ? lists.get(event.get("list")) : lists.values().iterator().next();
    return Check.notNull(found, "list");
  }

  private static int integer(Map<String, Object> event, String key) {
    return (int) Json.number(event.get(key));
  }

  private void perform(Map<String, Object> event) {
    switch ((String) event.get("do")) {
      case "update":
        scaler.update();
        break;
      case "set_scale":
        scaler.setScale((float) Json.number(event.get("scale")));
        break;
      case "set_options":
        scaler.setOptions(read(Json.object(event.get("options")), scaler.getOptions()));
        break;
      case "save":
        saved.put((String) event.get("as"), scaler.getState());
        break;
      case "restore":
        scaler.setState(saved.get((String) event.get("from")));
        break;
      case "new_scaler":
        scaler.close();
        scaler = new GradScaler(context,
            read(event.containsKey("scaler") ? Json.object(event.get("scaler")) : options, new ScalerOptions()));
        break;
      case "run":
        run((String) event.get("pattern"), Json.list(event.get("scales")));
        break;
      case "discard":
        if (event.containsKey("list")) {
          scaler.discard(list(event).grads);
        } else {
          scaler.discardAll();
        }
        break;
      default:
        performOn(list(event), event);
    }
  }

  private void performOn(Lists target, Map<String, Object> event) {
    switch ((String) event.get("do")) {
      case "fill":
        fill(target, event.containsKey("value") ? Json.number(event.get("value"))
                                                : Json.number(event.get("true_value")) * scaler.getScale());
        break;
      case "plant":
        final Tensor tensor = target.gradients[integer(event, "tensor")];
        set(tensor.slice(integer(event, "element"), 1), Json.number(event.get("value")));
        break;
      case "unscale":
        scaler.unscale(target.grads);
        break;
      case "check":
        scaler.check(target.grads);
        break;
      case "check_range":
        scaler.checkRange(target.grads, integer(event, "first"), integer(event, "count"));
        break;
      case "clip_norm":
        scaler.clipGradNorm(target.grads, Json.number(event.get("max_norm")), word(Norm.class, event.get("norm")));
        break;
      case "clip_value":
        scaler.clipGradValue(target.grads, Json.number(event.get("value")));
        break;
      case "step":
        scaler.step(target.optimizer);
        break;
      case "step_and_update":
        scaler.stepAndUpdate(target.optimizer);
        break;
      case "should_step":
        apply = scaler.shouldStep(target.grads);
        break;
      default:
        throw new IllegalArgumentException("unknown event " + event.get("do"));
    }
  }

  private void fill(Lists target, double value) {
    for (Tensor tensor : target.gradients) {
      set(tensor, value);
    }
  }

  private void set(Tensor tensor, double value) {
    final Tensor source = Tensor.allocate(DType.FP64, (int) tensor.count());
    final DoubleBuffer doubles = source.doubles();
    while (doubles.hasRemaining()) {
      doubles.put(value);
    }
    Ops.cast(context, source, tensor);
  }

  private void run(String pattern, List<Object> scales) {
    assertEquals(pattern.length(), scales.size());
    for (int i = 0; i < pattern.length(); i++) {
      for (Lists each : lists.values()) {
        fill(each, scaler.getScale());
      }
      if (pattern.charAt(i) == 'x') {
        set(lists.values().iterator().next().gradients[0].slice(0, 1), Double.POSITIVE_INFINITY);
      }
      for (Lists each : lists.values()) {
        scaler.step(each.optimizer);
      }
      scaler.update();
      assertEquals((float) Json.number(scales.get(i)), scaler.getScale(), "letter " + i + " of " + pattern);
    }
  }

  private boolean floorError;

  /** The report, whether or not it comes with an exception. */
  private Report report() {
    try {
      floorError = false;
      return scaler.report();
    } catch (ScaleFloorException e) {
      floorError = true;
      return e.report();
    }
  }

  private void judge(String key, Object value, String where) {
    switch (key) {
      case "scale":
        assertEquals((float) Json.number(value), scaler.getScale(), where);
        break;
      case "inv_scale":
        final Tensor word = Tensor.allocate(DType.FP32, 1);
        Ops.cast(context, Tensor.at(scaler.deviceState(null).invScale(), 1, DType.FP32), word);
        assertEquals((float) Json.number(value), word.floats().get(0), where);
        break;
      case "growth_tracker":
        assertEquals(Json.number(value), report().growthTracker(), where);
        break;
      case "hysteresis_tracker":
        assertEquals(Json.number(value), report().hysteresisTracker(), where);
        break;
      case "consecutive_skips":
        assertEquals(Json.number(value), report().consecutiveSkips(), where);
        break;
      case "updates":
        assertEquals(Json.number(value), report().updates(), where);
        break;
      case "skipped":
        assertEquals(Json.number(value), report().skipped(), where);
        break;
      case "overflow":
        assertEquals(value, report().overflow(), where);
        break;
      case "at_floor":
        assertEquals(value, report().atFloor(), where);
        break;
      case "floor_error":
        report();
        assertEquals(value, floorError, where);
        break;
      case "apply":
        assertEquals(Json.number(value) != 0, apply, where);
        break;
      case "history":
        judgeHistory(Json.list(value), where);
        break;
      default:
        Json.object(value).forEach((name, expected) -> judgeList(key, lists.get(name), expected, where + ": " + name));
    }
  }

  private void judgeList(String key, Lists target, Object value, String where) {
    switch (key) {
      case "params":
        judgeElements(target.weights, value, where);
        break;
      case "grads":
        judgeElements(target.gradients, value, where);
        break;
      case "steps":
        assertEquals(Json.number(Json.list(value).get(0)), target.optimizer.stepsApplied(), where);
        assertEquals(Json.number(Json.list(value).get(1)), target.optimizer.stepsSkipped(), where);
        break;
      case "report":
        Report read;
        try {
          read = scaler.report(target.grads);
        } catch (ScaleFloorException e) {
          read = e.report();
        }
        final Report report = read;
        Json.object(value).forEach((field, expected) -> judgeReport(report, field, expected, where + ": " + field));
        break;
      default:
        throw new IllegalArgumentException("unknown expectation " + key);
    }
  }

  private static void judgeReport(Report report, String field, Object value, String where) {
    switch (field) {
      case "overflow":
        assertEquals(value, report.overflow(), where);
        break;
      case "nonfinite":
        assertEquals(Json.number(value), report.nonfiniteCount(), where);
        break;
      case "inf":
        assertEquals(Json.number(value), report.infCount(), where);
        break;
      case "nan":
        assertEquals(Json.number(value), report.nanCount(), where);
        break;
      case "first_tensor":
        assertEquals(Json.number(value), report.firstTensor(), where);
        break;
      case "first_element":
        assertEquals(Json.number(value), report.firstElement(), where);
        break;
      case "norm":
        near(Json.number(value), report.gradNorm(), where);
        break;
      case "amax":
        near(Json.number(value), report.gradAmax(), where);
        break;
      default:
        throw new IllegalArgumentException("unknown field of a report " + field);
    }
  }

  private void judgeElements(Tensor[] tensors, Object value, String where) {
    int at = 0;
    for (Tensor tensor : tensors) {
      final Tensor exact = Tensor.allocate(DType.FP64, (int) tensor.count());
      Ops.cast(context, tensor, exact);
      for (int i = 0; i < tensor.count(); i++, at++) {
        near(Json.number(value instanceof List ? Json.list(value).get(at) : value), exact.doubles().get(i), where);
      }
    }
    if (value instanceof List) {
      assertEquals(Json.list(value).size(), at, where);
    }
  }

  private static void near(double expected, double got, String where) {
    if (Double.isNaN(expected) || Double.isInfinite(expected) || expected == 0) {
      assertEquals(expected, got + 0.0, where);
    } else {
      assertEquals(expected, got, 1e-6 * Math.abs(expected), where);
    }
  }

  private void judgeHistory(List<Object> expected, String where) {
    final List<HistoryEntry> history = scaler.history();
    final int first = history.size() - expected.size();
    for (int i = 0; i < expected.size(); i++) {
      final List<Object> entry = Json.list(expected.get(i));
      final HistoryEntry got = history.get(first + i);
      assertEquals(Json.number(entry.get(0)), got.update(), where);
      assertEquals((float) Json.number(entry.get(1)), got.scale(), where);
      assertEquals(Json.number(entry.get(2)) != 0, got.overflow(), where);
    }
  }

  @Override
  public void close() {
    scaler.close();
    context.close();
  }
}
