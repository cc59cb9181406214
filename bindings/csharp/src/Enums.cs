// SPDX-License-Identifier: Apache-2.0
// The constants of the library as enumerations. Their values are the library's.
namespace Gradscaler
{
  /// <summary>Element types.</summary>
  public enum DType
  {
    /// <summary>IEEE binary16.</summary>
    Fp16 = NativeCalls.FP16,
    /// <summary>bfloat16: the upper half of an IEEE binary32.</summary>
    Bf16 = NativeCalls.BF16,
    /// <summary>IEEE binary32.</summary>
    Fp32 = NativeCalls.FP32,
    /// <summary>IEEE binary64.</summary>
    Fp64 = NativeCalls.FP64,
  }

  /// <summary>Why a call failed.</summary>
  public enum Status
  {
    /// <summary>An argument is null, out of range, inconsistent or of an unknown kind.</summary>
    InvalidArgument = NativeCalls.ERROR_INVALID_ARGUMENT,
    /// <summary>The call is not allowed now, such as unscale twice between two updates.</summary>
    BadState = NativeCalls.ERROR_BAD_STATE,
    /// <summary>Host or device memory could not be had.</summary>
    OutOfMemory = NativeCalls.ERROR_OUT_OF_MEMORY,
    /// <summary>The device or backend is not there.</summary>
    Unavailable = NativeCalls.ERROR_UNAVAILABLE,
    /// <summary>A combination that this version does not do.</summary>
    Unsupported = NativeCalls.ERROR_UNSUPPORTED,
    /// <summary>The device runtime reported an error.</summary>
    Device = NativeCalls.ERROR_DEVICE,
    /// <summary>The scale could not be lowered any further, under FloorAction.Error.</summary>
    ScaleFloor = NativeCalls.ERROR_SCALE_FLOOR,
    /// <summary>A callback returned an error.</summary>
    Callback = NativeCalls.ERROR_CALLBACK,
    /// <summary>A defect of the library.</summary>
    Internal = NativeCalls.ERROR_INTERNAL,
  }

  /// <summary>Norms over all elements of all tensors of a list.</summary>
  public enum Norm
  {
    /// <summary>Square root of the sum of squares.</summary>
    L2 = NativeCalls.NORM_L2,
    /// <summary>Largest magnitude.</summary>
    Inf = NativeCalls.NORM_INF,
  }

  /// <summary>Kinds of device.</summary>
  public enum DeviceType
  {
    /// <summary>The host's processors.</summary>
    Cpu = NativeCalls.DEVICE_CPU,
    /// <summary>An NVIDIA GPU.</summary>
    Cuda = NativeCalls.DEVICE_CUDA,
  }

  /// <summary>Instruction sets of the CPU kernels. Every one gives the same bits.</summary>
  public enum CpuTarget
  {
    /// <summary>The best this processor and this build have.</summary>
    Best = NativeCalls.CPU_BEST,
    /// <summary>What every processor of the architecture has.</summary>
    Baseline = NativeCalls.CPU_BASELINE,
    /// <summary>AVX2, FMA and F16C.</summary>
    Avx2 = NativeCalls.CPU_AVX2,
    /// <summary>AVX-512 F, BW, DQ and VL.</summary>
    Avx512 = NativeCalls.CPU_AVX512,
  }

  /// <summary>When the hysteresis counter is filled up again.</summary>
  public enum HysteresisRefill
  {
    /// <summary>When the scale grows (Megatron-LM, DeepSpeed, ColossalAI).</summary>
    OnGrowth = NativeCalls.REFILL_ON_GROWTH,
    /// <summary>On every step without overflow (Apex).</summary>
    OnCleanStep = NativeCalls.REFILL_ON_CLEAN_STEP,
    /// <summary>On every step without overflow and after every backoff (Paddle).</summary>
    Consecutive = NativeCalls.REFILL_CONSECUTIVE,
  }

  /// <summary>Which clean step makes the scale grow; G is the growth interval.</summary>
  public enum GrowthTiming
  {
    /// <summary>The G-th in a row, then every G (PyTorch and most others).</summary>
    AtInterval = NativeCalls.GROWTH_AT_INTERVAL,
    /// <summary>The (G+1)-th in a row, then every G+1 (Flax).</summary>
    OneLater = NativeCalls.GROWTH_ONE_LATER,
    /// <summary>The (G+1)-th in a row, then every G (DeepSpeed).</summary>
    FirstOneLater = NativeCalls.GROWTH_FIRST_ONE_LATER,
  }

  /// <summary>What happens when an overflow meets a scale at the minimum.</summary>
  public enum FloorAction
  {
    /// <summary>The scale stays at the minimum.</summary>
    Clamp = NativeCalls.FLOOR_CLAMP,
    /// <summary>As Clamp; after FloorPatience consecutive skips the report says so.</summary>
    Report = NativeCalls.FLOOR_REPORT,
    /// <summary>As Report; reading the report then throws ScaleFloorException.</summary>
    Error = NativeCalls.FLOOR_ERROR,
  }

  /// <summary>Systems whose policy is reproduced step by step.</summary>
  public enum Preset
  {
    /// <summary>torch.amp.GradScaler; the default.</summary>
    Torch = NativeCalls.PRESET_TORCH,
    /// <summary>apex.amp.scaler.LossScaler.</summary>
    Apex = NativeCalls.PRESET_APEX,
    /// <summary>Apex's update_scale_hysteresis kernel, with hysteresis 2.</summary>
    ApexHysteresis = NativeCalls.PRESET_APEX_HYSTERESIS,
    /// <summary>megatron.core DynamicGradScaler.</summary>
    Megatron = NativeCalls.PRESET_MEGATRON,
    /// <summary>deepspeed DynamicLossScaler.</summary>
    DeepSpeed = NativeCalls.PRESET_DEEPSPEED,
    /// <summary>tf.keras.mixed_precision.LossScaleOptimizer (TensorFlow 2).</summary>
    TensorFlow = NativeCalls.PRESET_TENSORFLOW,
    /// <summary>keras.optimizers.LossScaleOptimizer (Keras 3).</summary>
    Keras = NativeCalls.PRESET_KERAS,
    /// <summary>flax.training.dynamic_scale.DynamicScale.</summary>
    Flax = NativeCalls.PRESET_FLAX,
    /// <summary>jmp.DynamicLossScale.</summary>
    Jmp = NativeCalls.PRESET_JMP,
    /// <summary>paddle.amp.GradScaler.</summary>
    Paddle = NativeCalls.PRESET_PADDLE,
    /// <summary>mindspore.amp.DynamicLossScaler.</summary>
    MindSpore = NativeCalls.PRESET_MINDSPORE,
    /// <summary>fairseq.optim.dynamic_loss_scaler.DynamicLossScaler.</summary>
    Fairseq = NativeCalls.PRESET_FAIRSEQ,
    /// <summary>oneflow.amp.GradScaler.</summary>
    OneFlow = NativeCalls.PRESET_ONEFLOW,
    /// <summary>colossalai DynamicGradScaler.</summary>
    ColossalAI = NativeCalls.PRESET_COLOSSALAI,
  }

  /// <summary>Kinds of optimizer.</summary>
  public enum OptimizerKind
  {
    /// <summary>Stochastic gradient descent, with momentum if that is not 0.</summary>
    Sgd = NativeCalls.SGD,
    /// <summary>Adam; weight decay is added to the gradient.</summary>
    Adam = NativeCalls.ADAM,
    /// <summary>Adam with decoupled weight decay.</summary>
    AdamW = NativeCalls.ADAMW,
    /// <summary>Adagrad.</summary>
    Adagrad = NativeCalls.ADAGRAD,
    /// <summary>Lion (Chen et al. 2023).</summary>
    Lion = NativeCalls.LION,
    /// <summary>LAMB (You et al. 2020).</summary>
    Lamb = NativeCalls.LAMB,
  }
}
