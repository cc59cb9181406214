// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Scaler options and enumerations as the files under tests/conformance write them. Unknown names are errors, so that a
 * misspelt one cannot pass unnoticed.
 */
final class OptionReader {
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
      if (!key.equals("preset")) {
        readOption(o, key, value);
      }
    });
    return o;
  }

  private static void readOption(ScalerOptions o, String key, Object value) {
    switch (key) {
      case "hysteresis_refill":
        o.hysteresisRefill(word(HysteresisRefill.class, value));
        return;
      case "growth_timing":
        o.growthTiming(word(GrowthTiming.class, value));
        return;
      case "floor_action":
        o.floorAction(word(FloorAction.class, value));
        return;
      case "flags":
        final List<Object> words = Json.list(value);
        o.growOnEqual(words.contains("grow_on_equal")).noFiniteGuard(words.contains("no_finite_guard"));
        o.floorExclusive(words.contains("floor_exclusive")).fp32Products(words.contains("fp32_products"));
        return;
      default:
        readNumber(o, key, Json.number(value));
    }
  }

  private static void readNumber(ScalerOptions o, String key, double value) {
    switch (key) {
      case "init_scale":
        o.initScale((float) value);
        break;
      case "min_scale":
        o.minScale((float) value);
        break;
      case "max_scale":
        o.maxScale((float) value);
        break;
      case "growth_interval":
        o.growthInterval((int) value);
        break;
      case "growth_factor":
        o.growthFactor(value);
        break;
      case "backoff_factor":
        o.backoffFactor(value);
        break;
      case "enabled":
        o.enabled(value != 0);
        break;
      case "hysteresis":
        o.hysteresis((int) value);
        break;
      case "overflow_tolerance":
        o.overflowTolerance(value);
        break;
      case "recovery_threshold":
        o.recoveryThreshold((float) value);
        break;
      case "recovery_interval":
        o.recoveryInterval((int) value);
        break;
      case "floor_patience":
        o.floorPatience((int) value);
        break;
      case "history_capacity":
        o.historyCapacity((int) value);
        break;
      default:
        throw new IllegalArgumentException("unknown option " + key);
    }
  }
}
