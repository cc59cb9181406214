// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Systems whose policy is reproduced step by step. */
public enum Preset {
  /** torch.amp.GradScaler; the default. */
  TORCH(NativeCalls.PRESET_TORCH),
  /** apex.amp.scaler.LossScaler. */
  APEX(NativeCalls.PRESET_APEX),
  /** Apex's update_scale_hysteresis kernel, with hysteresis 2. */
  APEX_HYSTERESIS(NativeCalls.PRESET_APEX_HYSTERESIS),
  /** megatron.core DynamicGradScaler. */
  MEGATRON(NativeCalls.PRESET_MEGATRON),
  /** deepspeed DynamicLossScaler. */
  DEEPSPEED(NativeCalls.PRESET_DEEPSPEED),
  /** tf.keras.mixed_precision.LossScaleOptimizer (TensorFlow 2). */
  TENSORFLOW(NativeCalls.PRESET_TENSORFLOW),
  /** keras.optimizers.LossScaleOptimizer (Keras 3). */
  KERAS(NativeCalls.PRESET_KERAS),
  /** flax.training.dynamic_scale.DynamicScale. */
  FLAX(NativeCalls.PRESET_FLAX),
  /** jmp.DynamicLossScale. */
  JMP(NativeCalls.PRESET_JMP),
  /** paddle.amp.GradScaler. */
  PADDLE(NativeCalls.PRESET_PADDLE),
  /** mindspore.amp.DynamicLossScaler. */
  MINDSPORE(NativeCalls.PRESET_MINDSPORE),
  /** fairseq.optim.dynamic_loss_scaler.DynamicLossScaler. */
  FAIRSEQ(NativeCalls.PRESET_FAIRSEQ),
  /** oneflow.amp.GradScaler. */
  ONEFLOW(NativeCalls.PRESET_ONEFLOW),
  /** colossalai DynamicGradScaler. */
  COLOSSALAI(NativeCalls.PRESET_COLOSSALAI);

  private final int code;

  Preset(int code) {
    this.code = code;
  }

  int code() {
    return code;
  }

  static Preset of(int code) {
    for (Preset value : values()) {
      if (value.code == code) {
        return value;
      }
    }
    throw new IllegalStateException("no Preset " + code);
  }
}
