// SPDX-License-Identifier: Apache-2.0
package foreign;

import static java.lang.foreign.MemorySegment.NULL;
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_DOUBLE;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/**
 * The C library from Java 22 and later without JNI and without jextract. For programs that already work on memory
 * segments and want nothing but the step; the package io.github.gradscaler has all of it. A program that counts
 * microseconds keeps each handle in a static final field and calls its invokeExact.
 */
public final class Foreign {
  private static final int FP16 = 1;
  private static final int FP32 = 3;
  private static final int NORM_L2 = 2;

  private final SymbolLookup symbols;
  private final Map<String, MethodHandle> handles = new HashMap<>();
  private final MemorySegment out = Arena.ofAuto().allocate(ADDRESS);

  private Foreign(Path library) {
    symbols = SymbolLookup.libraryLookup(library, Arena.global());
  }

  private static MemoryLayout layout(Object argument) {
    return argument instanceof Integer ? JAVA_INT : argument instanceof Long ? JAVA_LONG
        : argument instanceof Double ? JAVA_DOUBLE : ADDRESS;
  }

  private Object invoke(String function, FunctionDescriptor type, Object... arguments) {
    try {
      return handles.computeIfAbsent(function, name -> Linker.nativeLinker().downcallHandle(
          symbols.find(name).orElseThrow(), type)).invokeWithArguments(arguments);
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  /** Every function but the destructors returns a status: 0, or an error whose sentence this thread can ask for. */
  private void call(String function, Object... arguments) {
    final MemoryLayout[] types = Arrays.stream(arguments).map(Foreign::layout).toArray(MemoryLayout[]::new);
    if ((int) invoke(function, FunctionDescriptor.of(JAVA_INT, types), arguments) != 0) {
      final var text = (MemorySegment) invoke("gsc_error_get_message", FunctionDescriptor.of(ADDRESS));
      throw new IllegalArgumentException(text.reinterpret(Long.MAX_VALUE).getString(0));
    }
  }

  /** Calls a function whose last argument receives an object. */
  private MemorySegment make(String function, Object... arguments) {
    final Object[] all = Arrays.copyOf(arguments, arguments.length + 1);
    all[arguments.length] = out;
    call(function, all);
    return out.get(ADDRESS, 0);
  }

  /** A list of one array. tests/abi/layout.inc has the offsets of gsc_tensor; the fields for later versions stay 0. */
  private MemorySegment list(MemorySegment context, MemorySegment array, long count, int dtype) {
    final MemorySegment tensor = Arena.ofAuto().allocate(64, 8);
    tensor.set(ADDRESS, 0, array);
    tensor.set(JAVA_LONG, 8, count);
    tensor.set(JAVA_INT, 16, dtype);
    return make("gsc_tensor_list_create", context, tensor, 1L, NULL);
  }

  private float scale(MemorySegment scaler) {
    call("gsc_scaler_get_scale_sync", scaler, out, NULL);
    return out.get(JAVA_FLOAT, 0);
  }

  /** Fits w to 3 with fp16 gradients of (w - 3)^2 times the scale, which overflow at first. Argument: the library. */
  public static void main(String[] args) {
    final Foreign library = new Foreign(Path.of(args[0]));
    final MemorySegment weight = Arena.ofAuto().allocate(JAVA_FLOAT);
    final MemorySegment gradient = Arena.ofAuto().allocate(JAVA_SHORT);
    final MemorySegment context = library.make("gsc_context_create", NULL); // the defaults: the CPU
    final MemorySegment params = library.list(context, weight, 1, FP32);
    final MemorySegment grads = library.list(context, gradient, 1, FP16);
    // AdamW and a loss scale with PyTorch's defaults.
    final MemorySegment optimizer = library.make("gsc_optimizer_create", context, NULL, params, grads, NULL, NULL, 0);
    final MemorySegment scaler = library.make("gsc_scaler_create", context, NULL);
    for (int i = 0; i < 6000; i++) {
      final float exact = 2 * (weight.get(JAVA_FLOAT, 0) - 3) * library.scale(scaler);
      gradient.set(JAVA_SHORT, 0, Float.floatToFloat16(exact));
      library.call("gsc_scaler_clip_grad_norm", scaler, grads, 1.0, NORM_L2, NULL);
      library.call("gsc_scaler_step", scaler, optimizer, NULL);
      library.call("gsc_scaler_update", scaler, NULL);
    }
    System.out.printf("w %.4f, scale %.0f%n", weight.get(JAVA_FLOAT, 0), library.scale(scaler));
    try {
      library.list(context, weight, -1, FP32);
    } catch (IllegalArgumentException e) {
      System.out.println("refused: " + e.getMessage());
    }
    // In any order.
    final Map<String, MemorySegment> objects =
        Map.of("scaler", scaler, "optimizer", optimizer, "tensor_list", grads, "context", context);
    objects.forEach((kind, object) ->
        library.invoke("gsc_" + kind + "_destroy", FunctionDescriptor.ofVoid(ADDRESS), object));
    library.invoke("gsc_tensor_list_destroy", FunctionDescriptor.ofVoid(ADDRESS), params);
  }
}
