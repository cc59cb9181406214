// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.util.HashMap;
import java.util.Map;
import java.util.regex.Pattern;

/** The names of this package's methods for C functions. */
final class MethodNames {
  private static final String[][] OBJECTS = {{"gsc_context_", "Context"}, {"gsc_tensor_list_", "TensorList"},
      {"gsc_scaler_options_", "ScalerOptions"}, {"gsc_scaler_", "GradScaler"},
      {"gsc_optimizer_options_", "OptimizerOptions"}, {"gsc_optimizer_", "Optimizer"}, {"gsc_ops_", "Ops"}};
  private static final Pattern FUNCTION = Pattern.compile("\\bgsc_\\w+");
  /** Methods that are not the C name in Java's spelling. */
  private static final Map<String, String> EXCEPTIONS = new HashMap<>();

  static {
    final String[][] names = {{"gsc_library_get_version", "Context.version"},
        {"gsc_library_get_build_info", "Context.buildInfo"},
        {"gsc_context_create", "Context"},
        {"gsc_context_options_init", "Context"},
        {"gsc_context_get_device", "Context.deviceType"},
        {"gsc_context_get_cpu", "Context.cpuTarget"},
        {"gsc_context_get_memory", "Context.hostBytes"},
        {"gsc_device_get_count", "Context.deviceCount"},
        {"gsc_device_get_info", "Context.deviceInfo"},
        {"gsc_tensor_list_get_tensor", "TensorList.get"},
        {"gsc_tensor_list_get_name", "TensorList.get"},
        {"gsc_tensor_list_get_count", "TensorList.count"},
        {"gsc_tensor_list_set_pointers", "TensorList.setTensors"},
        {"gsc_histogram_recommend_scale", "Diagnosis.recommend"},
        {"gsc_scaler_get_report", "GradScaler.report"},
        {"gsc_scaler_get_history", "GradScaler.history"},
        {"gsc_scaler_get_device_state", "GradScaler.deviceState"},
        // gen-api: getter_names gsc_optimizer
        {"gsc_optimizer_get_group_count", "Optimizer.groupCount"},
        {"gsc_optimizer_get_evaluating", "Optimizer.evaluating"},
        {"gsc_optimizer_get_state_count", "Optimizer.stateCount"},
        {"gsc_optimizer_get_save_size", "Optimizer.saveSize"},
        // gen-api: end
        {"gsc_optimizer_get_state", "Optimizer.stateTensor"},
        {"gsc_optimizer_get_steps", "Optimizer.stepsApplied"},
        {"gsc_optimizer_get_tensor_steps", "Optimizer.tensorSteps"},
        {"gsc_optimizer_get_unchanged", "Optimizer.unchanged"}};
    for (String[] name : names) {
      EXCEPTIONS.put(name[0], name[1]);
    }
  }

  private MethodNames() {}

  /** A message begins with the function that failed, unless the failure was found in this package. It may name others. */
  static String inMessage(String message) {
    return FUNCTION.matcher(message).replaceAll(found -> of(found.group()));
  }

  /** Such as GradScaler.clipGradNorm; a constructor is its class. Other functions stay as they are. */
  static String of(String function) {
    final String plain = function.endsWith("_sync") ? function.substring(0, function.length() - 5) : function;
    final String exception = EXCEPTIONS.get(plain);
    if (exception != null) {
      return exception;
    }
    for (String[] object : OBJECTS) {
      if (plain.startsWith(object[0])) {
        final String verb = plain.substring(object[0].length());
        final boolean constructor = verb.equals("create") || verb.equals("init") || verb.equals("init_preset");
        return constructor ? object[1] : object[1] + "." + camel(verb.equals("destroy") ? "close" : verb);
      }
    }
    return function;
  }

  private static String camel(String name) {
    final StringBuilder text = new StringBuilder();
    for (String word : name.split("_")) {
      text.append(text.length() == 0 ? word : Character.toUpperCase(word.charAt(0)) + word.substring(1));
    }
    return text.toString();
  }
}
