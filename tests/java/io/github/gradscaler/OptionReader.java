// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Options, states and enumerations as the files under tests/conformance write them: a field is set by the method of its
 * name. Unknown names are errors, so that a misspelt one cannot pass unnoticed.
 */
final class OptionReader {
  private static final List<String> FLAGS =
      List.of("grow_on_equal", "no_finite_guard", "floor_exclusive", "fp32_products");

  private OptionReader() {}

  /** The value of an enumeration by its name in lower case. */
  static <E extends Enum<E>> E word(Class<E> type, Object value) {
    return Enum.valueOf(type, ((String) value).toUpperCase(Locale.ROOT));
  }

  /** Options over a base, or over a preset where the object names one. */
  static ScalerOptions read(Map<String, Object> object, ScalerOptions base) {
    final ScalerOptions o =
        object.containsKey("preset") ? new ScalerOptions(word(Preset.class, object.get("preset"))) : base;
    object.forEach((key, value) -> {
      if (key.equals("flags")) {
        FLAGS.forEach(flag -> set(o, flag, Json.list(value).contains(flag) ? 1.0 : 0.0));
      } else if (!key.equals("preset")) {
        set(o, key, value);
      }
    });
    return o;
  }

  /** Calls {@code target.growthInterval(value)} for "growth_interval". */
  static void set(Object target, String key, Object value) {
    final StringBuilder name = new StringBuilder();
    for (String word : key.split("_")) {
      name.append(name.length() == 0 ? word : word.substring(0, 1).toUpperCase(Locale.ROOT) + word.substring(1));
    }
    final Method method = Arrays.stream(target.getClass().getMethods())
        .filter(m -> m.getName().contentEquals(name) && m.getParameterCount() == 1).findAny()
        .orElseThrow(() -> new IllegalArgumentException("unknown option " + key));
    try {
      method.invoke(target, as(method.getParameterTypes()[0], value));
    } catch (InvocationTargetException e) {
      throw (RuntimeException) e.getCause();
    } catch (IllegalAccessException e) {
      throw new IllegalStateException(e);
    }
  }

  private static Object as(Class<?> type, Object value) {
    if (type.isEnum()) {
      return Arrays.stream(type.getEnumConstants()).filter(e -> e.toString().equalsIgnoreCase((String) value)).findAny()
          .orElseThrow(() -> new IllegalArgumentException("unknown word " + value));
    }
    final Double number = Json.number(value);
    if (type == boolean.class) {
      return number != 0;
    }
    return type == float.class ? (Object) number.floatValue() : type == int.class ? (Object) number.intValue()
        : type == long.class ? (Object) number.longValue() : number;
  }
}
