// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static io.github.gradscaler.OptionReader.read;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;

/** Makes the calls that the rows of tests/conformance/bad_input.json name, on a world of their own. */
final class BadCalls implements AutoCloseable {
  final World world = new World(4);
  private final ByteBuffer memory = World.direct(64);

  /** `nothing` names the argument that is null; null if none is. */
  void make(String call, String nothing, Map<String, Object> with) {
    final Context context = "context".equals(nothing) ? null : world.context;
    switch (call) {
      case "make_context":
        Context.cpu(integer(with, "num_threads")).close();
        break;
      case "device_info":
        Context.deviceInfo(DeviceType.CPU, integer(with, "index"));
        break;
      case "make_scaler":
        new GradScaler(context, read(with, new ScalerOptions())).close();
        break;
      case "make_list":
        new TensorList(context, tensors(with.get("tensors"))).close();
        break;
      case "list_get":
        world.grads.get(integer(with, "index"));
        break;
      case "set_tensors":
        world.grads.setTensors(tensors(with.get("tensors")));
        break;
      case "ops_cast":
        Ops.cast(context, tensors(with.get("src")), tensors(with.get("dst")));
        break;
      case "ops_update_scale":
        final DeviceScalar real = DeviceScalar.of(memory.asFloatBuffer());
        Ops.updateScale(context, real, DeviceScalar.of(memory.asIntBuffer()), real, number(with, "growth_factor"),
            number(with, "backoff_factor"), integer(with, "growth_interval"));
        break;
      default:
        if (!onScaler(call, nothing, with)) {
          onOptimizer(call, nothing, with, context);
        }
    }
  }

  private boolean onScaler(String call, String nothing, Map<String, Object> with) {
    final GradScaler scaler = world.scaler;
    final TensorList grads = "grads".equals(nothing) ? null : world.grads;
    final Optimizer optimizer = "optimizer".equals(nothing) ? null : world.optimizer;
    switch (call) {
      case "set_options":
        scaler.setOptions(read(with, scaler.getOptions()));
        return true;
      case "set_growth_factor":
        scaler.setGrowthFactor(number(with, "value"));
        return true;
      case "set_backoff_factor":
        scaler.setBackoffFactor(number(with, "value"));
        return true;
      case "set_growth_interval":
        scaler.setGrowthInterval(integer(with, "value"));
        return true;
      case "set_scale":
        scaler.setScale((float) number(with, "scale"));
        return true;
      case "set_state":
        scaler.setState("state".equals(nothing) ? null : state(scaler.getState(), with));
        return true;
      case "unscale":
        scaler.unscale(grads);
        return true;
      case "check":
        scaler.check(grads);
        return true;
      case "check_range":
        scaler.checkRange(grads, integer(with, "first"), integer(with, "count"));
        return true;
      case "clip_norm":
        scaler.clipGradNorm(grads, number(with, "max_norm"));
        return true;
      case "clip_value":
        scaler.clipGradValue(grads, number(with, "value"));
        return true;
      case "step":
        scaler.step(optimizer);
        return true;
      case "step_and_update":
        scaler.stepAndUpdate(optimizer);
        return true;
      case "should_step":
        scaler.shouldStep(grads);
        return true;
      case "update":
        scaler.update();
        return true;
      case "report":
        scaler.report(grads);
        return true;
      default:
        return false;
    }
  }

  private void onOptimizer(String call, String nothing, Map<String, Object> with, Context context) {
    final Optimizer optimizer = world.optimizer;
    switch (call) {
      case "make_optimizer":
        makeOptimizer(context, nothing, with);
        break;
      case "add_group":
        optimizer.addGroup(integer(with, "first"), integer(with, "count"), optimizer.getOptions(0));
        break;
      case "set_lr":
        optimizer.setLr(integer(with, "group"), number(with, "lr"));
        break;
      case "set_steps":
        optimizer.setSteps(integer(with, "applied"), integer(with, "skipped"));
        break;
      case "state_tensor":
        optimizer.stateTensor(integer(with, "slot"), integer(with, "index"));
        break;
      case "save":
        optimizer.save(World.direct(integer(with, "size")));
        break;
      case "load":
        optimizer.load(World.direct(integer(with, "size")));
        break;
      default:
        throw new IllegalArgumentException("unknown call " + call);
    }
  }

  private void makeOptimizer(Context context, String nothing, Map<String, Object> with) {
    final List<Object> state = Json.list(with.getOrDefault("state", List.of()));
    new Optimizer(context, options(with), world.params,
        "grads".equals(nothing) ? null : list(with.get("grads"), world.grads), list(with.get("model_copy"), null),
        state.stream().map(counts -> list(counts, null)).toArray(TensorList[]::new)).close();
  }

  private static OptimizerOptions options(Map<String, Object> with) {
    final Object kind = with.getOrDefault("kind", "sgd");
    final OptimizerOptions o = new OptimizerOptions(OptionReader.word(OptimizerKind.class, kind));
    with.forEach((key, value) -> {
      if (!List.of("kind", "grads", "model_copy", "state").contains(key)) {
        OptionReader.set(o, key, value);
      }
    });
    return o;
  }

  private static ScalerState state(ScalerState state, Map<String, Object> with) {
    with.forEach((key, value) -> OptionReader.set(state, key, value));
    return state;
  }

  private static double number(Map<String, Object> with, String key) {
    return Json.number(with.get(key));
  }

  private static int integer(Map<String, Object> with, String key) {
    return (int) number(with, key);
  }

  /** Pieces of this object's memory, by byte offset. */
  private Tensor[] tensors(Object descriptions) {
    return Json.list(descriptions).stream().map(description -> {
      final Map<String, Object> d = Json.object(description);
      final long start = NativeCallsJNI.bufferAddress(memory);
      final long address = "null".equals(d.get("at")) ? 0 : start + integer(d, "at");
      return Tensor.at(address, integer(d, "count"), OptionReader.word(DType.class, d.getOrDefault("dtype", "fp32")));
    }).toArray(Tensor[]::new);
  }

  /** A list of fp32 tensors with memory of their own. */
  private TensorList list(Object counts, TensorList otherwise) {
    return counts == null ? otherwise : new TensorList(world.context, Json.list(counts).stream()
        .map(count -> Tensor.allocate(DType.FP32, (int) Json.number(count))).toArray(Tensor[]::new));
  }

  @Override
  public void close() {
    world.close();
  }
}
