// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.*;

import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** Exceptions are those that Java has for the case, their messages name Java's methods, and objects print themselves. */
class ExceptionsTest {
  /** Cannot fail, or has no counterpart. */
  private static final Set<String> NOT_IN_JAVA = Set.of("gsc_library_get_abi_version", "gsc_status_get_name",
      "gsc_error_get_message", "gsc_error_get_last", "gsc_error_clear", "gsc_optimizer_get_grads", "gsc_scaler_get_state_size");

  @Test
  void areJavasOwn() {
    try (World w = new World(2)) {
      final IllegalArgumentException argument =
          assertThrows(IllegalArgumentException.class, () -> new TensorList(w.context, (Tensor[]) null));
      assertSame(Status.INVALID_ARGUMENT, ((GradScalerFailure) argument).status());
      assertThrows(IllegalArgumentException.class, () -> w.scaler.setScale(-1));
      w.scaler.unscale(w.grads);
      final IllegalStateException state =
          assertThrows(IllegalStateException.class, () -> w.scaler.unscale(w.grads));
      assertSame(Status.BAD_STATE, ((GradScalerFailure) state).status());
      w.optimizer.close();
      assertThrows(IllegalStateException.class, () -> w.optimizer.step());
    }
    assertThrows(UnavailableException.class, () -> Context.cuda(123));
    assertThrows(UnavailableException.class, () -> Context.deviceInfo(DeviceType.CPU, 3));
  }

  @Test
  void nameTheArgument() {
    try (World w = new World(2)) {
      final FailedArgument option = failure(
          () -> new GradScaler(w.context, new ScalerOptions().initScale(-1))).argument();
      assertEquals("options", option.name());
      assertEquals("init_scale", option.field());
      assertEquals(-1, option.index());
      assertEquals(-1, option.tensor());
      final Tensor[] bad = {w.weights, Tensor.at(1, 4, DType.FP32)};
      final FailedArgument tensor = failure(() -> Ops.cast(w.context, bad, bad)).argument();
      assertEquals("src", tensor.name());
      assertEquals("data", tensor.field());
      assertEquals(1, tensor.tensor());
      w.scaler.unscale(w.grads);
      final FailedArgument grads = failure(() -> w.scaler.unscale(w.grads)).argument();
      assertEquals("grads", grads.name());
      assertNull(grads.field());
      w.scaler.update();
      assertNull(failure(() -> w.scaler.update()).argument());
    }
  }

  private static GradScalerFailure failure(Runnable call) {
    return (GradScalerFailure) assertThrows(RuntimeException.class, call::run);
  }

  @Test
  void messagesNameTheMethod() {
    try (World w = new World(2)) {
      says("GradScaler.setScale: ", () -> w.scaler.setScale(-1));
      says("Optimizer.setLr: ", () -> w.optimizer.setLr(0, -1));
      final Tensor[] bad = {Tensor.at(1, 4, DType.FP32)};
      says("Ops.cast: ", () -> Ops.cast(w.context, bad, bad));
      says("TensorList: ", () -> new TensorList(w.context, Tensor.at(1, 4, DType.FP32)));
      says("GradScaler: ", () -> new GradScaler(w.context, new ScalerOptions().initScale(-1)));
      w.scaler.unscale(w.grads);
      says("GradScaler.unscale: ", () -> w.scaler.unscale(w.grads));
    }
  }

  private static void says(String start, Runnable call) {
    final RuntimeException e = assertThrows(RuntimeException.class, call::run);
    assertTrue(e.getMessage().startsWith(start), e.getMessage());
    assertFalse(e.getMessage().contains("gsc_"), e.getMessage());
  }

  /** Every function of the C ABI has a method that exists. */
  @TestFactory
  Stream<DynamicTest> functionsHaveMethods() throws IOException {
    final List<String> functions = Files.readAllLines(Path.of(System.getProperty("gradscaler.test.functions")))
        .stream().filter(line -> line.startsWith("gsc_")).collect(Collectors.toList());
    assertTrue(functions.size() > 70);
    return functions.stream().filter(f -> !NOT_IN_JAVA.contains(f)).map(function -> DynamicTest.dynamicTest(function,
        () -> exists(MethodNames.of(function))));
  }

  private static void exists(String name) throws ClassNotFoundException {
    final String[] parts = name.split("\\.");
    final Class<?> type = Class.forName("io.github.gradscaler." + parts[0]);
    if (parts.length == 1) {
      return;
    }
    assertTrue(Arrays.stream(type.getMethods()).map(Method::getName).anyMatch(parts[1]::equals), name);
  }

  @Test
  void objectsPrintThemselves() {
    final World w = new World(3);
    assertTrue(w.weights.named("weight").toString().matches("Tensor\\(weight: 3 x FP32 at 0x[0-9a-f]+\\)"));
    assertEquals("Tensor(3 x FP32 at 0x" + Long.toHexString(w.weights.address()) + ")", w.weights.toString());
    assertEquals("TensorList(1 tensors)", w.params.toString());
    assertTrue(w.context.toString().matches("Context\\(CPU, \\w+, 1 threads\\)"), w.context.toString());
    assertEquals("Optimizer(SGD, 1 group)", w.optimizer.toString());
    assertEquals("GradScaler(scale 1024.0)", w.scaler.toString());
    final String scalerOptions = new ScalerOptions().initScale(4).toString();
    assertTrue(scalerOptions.startsWith("ScalerOptions(initScale=4.0, "), scalerOptions);
    final String options = OptimizerOptions.adamW().lr(0.5).toString();
    assertTrue(options.startsWith("OptimizerOptions(kind=ADAMW, stateFormat=FULL, lr=0.5, "), options);
    w.close();
    for (Object object : List.of(w.params, w.context, w.optimizer, w.scaler)) {
      assertEquals(object.getClass().getSimpleName() + "(closed)", object.toString());
    }
  }
}
