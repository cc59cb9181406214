// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.*;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;
import java.util.jar.JarFile;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** What the jar shows to the outside: nothing that SWIG made, and no status as a number. */
class PublicApiTest {
  private static List<Class<?>> publicClasses() throws Exception {
    final List<Class<?>> classes = new ArrayList<>();
    try (JarFile jar = new JarFile(System.getProperty("gradscaler.test.jar"))) {
      for (String name : jar.stream().map(Object::toString).collect(Collectors.toList())) {
        if (name.endsWith(".class") && !name.equals("module-info.class") && !name.startsWith("META-INF/")) {
          final Class<?> type = Class.forName(name.substring(0, name.length() - 6).replace('/', '.'));
          assertTrue(!name.contains("SWIGTYPE"), name);
          if (Modifier.isPublic(type.getModifiers())) {
            classes.add(type);
          }
        }
      }
    }
    return classes;
  }

  @Test
  void generatedClassesAreHidden() throws Exception {
    final List<Class<?>> classes = publicClasses();
    assertTrue(classes.contains(GradScaler.class));
    for (Class<?> type : classes) {
      assertTrue(!type.getSimpleName().startsWith("Native"), type.getName());
      for (Method method : type.getDeclaredMethods()) {
        if (!Modifier.isPublic(method.getModifiers())) {
          continue;
        }
        final String signature = method.toGenericString();
        assertTrue(!signature.contains("Native"), signature);
        if (method.getName().toLowerCase().contains("status")) {
          assertEquals(Status.class, method.getReturnType(), signature);
        }
      }
    }
  }

  @Test
  void constantsAreThoseOfTheLibrary() {
    assertEquals(DType.FP16, DType.of(1));
    assertEquals(Status.SCALE_FLOOR, Status.of(7));
    assertEquals(Status.INTERNAL, Status.of(1234));
    assertEquals(Status.SPIKES, Status.of(10));
    assertEquals(16, Preset.values().length);
  }

  /** By the annotation, which has to be there at run time only for this. */
  @Test
  void whatMayBeNullSaysSo() throws Exception {
    final Method report = GradScaler.class.getMethod("report", TensorList.class, long.class);
    assertTrue(report.getAnnotatedParameterTypes()[0].isAnnotationPresent(Nullable.class));
    assertFalse(report.getAnnotatedReturnType().isAnnotationPresent(Nullable.class));
    assertFalse(GradScaler.class.getMethod("report", TensorList.class)
        .getAnnotatedParameterTypes()[0].isAnnotationPresent(Nullable.class));
    assertTrue(Tensor.class.getMethod("name").getAnnotatedReturnType().isAnnotationPresent(Nullable.class));
  }
}
