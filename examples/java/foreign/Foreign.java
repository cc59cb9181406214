// SPDX-License-Identifier: Apache-2.0
package foreign;

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
import java.lang.foreign.StructLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;

/**
 * The C library from Java 22 and later without JNI and without jextract: one handle a function. For programs that
 * already work on memory segments and want nothing but the step; the package io.github.gradscaler has all of it.
 *
 * <p>Every function but the destructors returns a status, which is 0 or an error whose sentence this thread can ask for.
 */
public final class Foreign implements AutoCloseable {
  /** tests/abi/layout.inc has sizes and offsets; the fields for later versions stay 0. */
  private static final StructLayout TENSOR = MemoryLayout.structLayout(ADDRESS.withName("data"), JAVA_LONG.withName("count"),
      JAVA_INT.withName("dtype"), MemoryLayout.paddingLayout(64 - 20));

  public static final int FP16 = 1;
  public static final int FP32 = 3;
  private static final int NORM_L2 = 2;

  private static final Linker LINKER = Linker.nativeLinker();

  private final Arena arena = Arena.ofShared();
  private final SymbolLookup symbols;
  private final MethodHandle message;
  private final MethodHandle createList;
  private final MethodHandle clip;
  private final MethodHandle step;
  private final MethodHandle update;
  private final MethodHandle getScale;
  private final MemorySegment context;

  public Foreign(Path library) {
    symbols = SymbolLookup.libraryLookup(library, arena);
    message = handle("gsc_error_get_message", FunctionDescriptor.of(ADDRESS));
    createList = status("gsc_tensor_list_create", ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);
    clip = status("gsc_scaler_clip_grad_norm", ADDRESS, ADDRESS, JAVA_DOUBLE, JAVA_INT, ADDRESS);
    step = status("gsc_scaler_step", ADDRESS, ADDRESS, ADDRESS);
    update = status("gsc_scaler_update", ADDRESS, ADDRESS);
    getScale = status("gsc_scaler_get_scale_sync", ADDRESS, ADDRESS, ADDRESS);
    final MethodHandle createContext = status("gsc_context_create", ADDRESS, ADDRESS);
    context = make(out -> (int) createContext.invokeExact(MemorySegment.NULL, out)); // the defaults
  }

  private MethodHandle handle(String name, FunctionDescriptor type) {
    return LINKER.downcallHandle(symbols.find(name).orElseThrow(), type);
  }

  private MethodHandle status(String name, MemoryLayout... parameters) {
    return handle(name, FunctionDescriptor.of(JAVA_INT, parameters));
  }

  private interface Call {
    int run() throws Throwable;
  }

  private interface Maker {
    int into(MemorySegment out) throws Throwable;
  }

  private void check(Call call) {
    try {
      if (call.run() != 0) {
        final MemorySegment text = (MemorySegment) message.invokeExact();
        throw new IllegalArgumentException(text.reinterpret(Long.MAX_VALUE).getString(0));
      }
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  private MemorySegment make(Maker maker) {
    try (Arena local = Arena.ofConfined()) {
      final MemorySegment out = local.allocate(ADDRESS);
      check(() -> maker.into(out));
      return out.get(ADDRESS, 0);
    }
  }

  /** A list of one array. */
  public MemorySegment list(MemorySegment array, long count, int dtype) {
    try (Arena local = Arena.ofConfined()) {
      final MemorySegment tensor = local.allocate(TENSOR);
      tensor.set(ADDRESS, 0, array);
      tensor.set(JAVA_LONG, 8, count);
      tensor.set(JAVA_INT, 16, dtype);
      return make(out -> (int) createList.invokeExact(context, tensor, 1L, MemorySegment.NULL, out));
    }
  }

  /** AdamW with PyTorch's defaults, on lists that it keeps. */
  public MemorySegment optimizer(MemorySegment params, MemorySegment grads) {
    final MethodHandle create = status("gsc_optimizer_create", ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS,
        JAVA_INT, ADDRESS);
    final MemorySegment none = MemorySegment.NULL;
    return make(out -> (int) create.invokeExact(context, none, params, grads, none, none, 0, out));
  }

  /** A loss scale as PyTorch's, from 65536. */
  public MemorySegment scaler() {
    final MethodHandle create = status("gsc_scaler_create", ADDRESS, ADDRESS, ADDRESS);
    return make(out -> (int) create.invokeExact(context, MemorySegment.NULL, out));
  }

  public void clipGradNorm(MemorySegment scaler, MemorySegment grads, double maxNorm) {
    check(() -> (int) clip.invokeExact(scaler, grads, maxNorm, NORM_L2, MemorySegment.NULL));
  }

  public void step(MemorySegment scaler, MemorySegment optimizer) {
    check(() -> (int) step.invokeExact(scaler, optimizer, MemorySegment.NULL));
  }

  public void update(MemorySegment scaler) {
    check(() -> (int) update.invokeExact(scaler, MemorySegment.NULL));
  }

  public float scale(MemorySegment scaler) {
    try (Arena local = Arena.ofConfined()) {
      final MemorySegment out = local.allocate(JAVA_FLOAT);
      check(() -> (int) getScale.invokeExact(scaler, out, MemorySegment.NULL));
      return out.get(JAVA_FLOAT, 0);
    }
  }

  /** Of "tensor_list", "optimizer" or "scaler", in any order. */
  public void destroy(String kind, MemorySegment object) {
    try {
      handle("gsc_" + kind + "_destroy", FunctionDescriptor.ofVoid(ADDRESS)).invokeExact(object);
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  @Override
  public void close() {
    destroy("context", context);
    arena.close(); // unloads the library
  }

  /** Fits w to 3 with fp16 gradients of (w - 3)^2 times the scale, which overflow at first. Argument: the library. */
  public static void main(String[] args) {
    try (Foreign library = new Foreign(Path.of(args[0])); Arena arena = Arena.ofConfined()) {
      final MemorySegment weight = arena.allocate(JAVA_FLOAT);
      final MemorySegment gradient = arena.allocate(2, 2);
      final MemorySegment params = library.list(weight, 1, FP32);
      final MemorySegment grads = library.list(gradient, 1, FP16);
      final MemorySegment optimizer = library.optimizer(params, grads);
      final MemorySegment scaler = library.scaler();
      for (int i = 0; i < 6000; i++) {
        final float exact = 2 * (weight.get(JAVA_FLOAT, 0) - 3) * library.scale(scaler);
        gradient.set(JAVA_SHORT, 0, Float.floatToFloat16(exact));
        library.clipGradNorm(scaler, grads, 1.0);
        library.step(scaler, optimizer);
        library.update(scaler);
      }
      System.out.printf("w %.4f, scale %.0f%n", weight.get(JAVA_FLOAT, 0), library.scale(scaler));
      try {
        library.list(weight, -1, FP32);
      } catch (IllegalArgumentException e) {
        System.out.println("refused: " + e.getMessage());
      }
      library.destroy("scaler", scaler);
      library.destroy("optimizer", optimizer);
      library.destroy("tensor_list", grads);
      library.destroy("tensor_list", params);
    }
  }
}
