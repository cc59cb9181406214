// SPDX-License-Identifier: Apache-2.0
// The policy of a scaler and the hyper-parameters of an optimizer: plain structs with a method per field, for
// `ScalerOptions::default().init_scale(1024.0)`.
use crate::error::check;
use crate::library::api;
use crate::{
    FloorAction, GrowthTiming, HysteresisRefill, MasterFormat, OptimizerKind, Preset, Result,
    StateFormat,
};
use gradscaler_sys as sys;
use std::mem::{size_of, MaybeUninit};

/// Declares a method for each field that sets it.
macro_rules! setters {
    ($name:ident: $($field:ident: $type:ty),*) => {
        impl $name {
            $(
                #[doc = concat!("Sets the field `", stringify!($field), "`.")]
                #[allow(clippy::useless_conversion)]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field.into();
                    self
                }
            )*
        }
    };
}

/// The policy of a [`GradScaler`](crate::GradScaler). The default is PyTorch's.
///
/// ```
/// use gradscaler::{Preset, ScalerOptions};
///
/// let options = ScalerOptions::default().init_scale(1024.0).growth_interval(100);
/// assert_eq!(options, ScalerOptions { init_scale: 1024.0, growth_interval: 100, ..Default::default() });
/// assert_eq!(ScalerOptions::preset(Preset::Torch)?, ScalerOptions::default());
/// # Ok::<(), gradscaler::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalerOptions {
    // gen-api: fields gsc_scaler_options
    /// First scale, finite and > 0, within `min_scale` and `max_scale`. Default 65536.
    pub init_scale: f32,
    /// Floor of the scale; 0: none. Default 0. A scale that
    /// [`GradScaler::set_scale`](crate::GradScaler::set_scale) sets below it stays until it grows.
    pub min_scale: f32,
    /// Ceiling of the scale; 0: none. Default 0.
    pub max_scale: f32,
    /// Clean steps between growths, >= 1. Default 2000.
    pub growth_interval: i32,
    /// Growth multiplies the scale by this, > 1. Refused if `init_scale` rounds back to itself.
    /// Default 2.
    pub growth_factor: f64,
    /// Backoff multiplies the scale by this, in (0, 1). Refused if `init_scale` rounds back to
    /// itself. Default 0.5.
    pub backoff_factor: f64,
    /// False: disabled. The scale is 1, gradients are not checked, every step is applied. Default
    /// true.
    pub enabled: bool,
    /// Overflows until the scale backs off, >= 1. Default 1: each overflow.
    pub hysteresis: i32,
    /// When the count of overflows starts again: [`HysteresisRefill`]. Default
    /// [`HysteresisRefill::OnGrowth`](crate::HysteresisRefill::OnGrowth).
    pub hysteresis_refill: HysteresisRefill,
    /// The clean step that grows: [`GrowthTiming`]. Default
    /// [`GrowthTiming::AtInterval`](crate::GrowthTiming::AtInterval).
    pub growth_timing: GrowthTiming,
    /// Back off only if overflows / updates since the last rescale >= this, in \[0, 1\] (fairseq).
    /// Default 0.
    pub overflow_tolerance: f64,
    /// While the scale is below this, `recovery_interval` replaces `growth_interval` (NVIDIA
    /// Modulus); 0: never. Default 0.
    pub recovery_threshold: f32,
    /// See `recovery_threshold`; >= 1 if that is set. Default 0.
    pub recovery_interval: i32,
    /// What happens at the floor: [`FloorAction`]. Default
    /// [`FloorAction::Clamp`](crate::FloorAction::Clamp).
    pub floor_action: FloorAction,
    /// Consecutive skipped updates at the floor until it is reported, >= 1. Default 1.
    pub floor_patience: i32,
    /// Updates kept in the history ring, 0..2^20. Creation allocates 32 bytes of device memory for
    /// each. Default 16, which shows what led to a skip. To plot the scale, give the number of
    /// steps between two reads.
    pub history_capacity: i32,
    /// Grow only when the tracker equals the interval: PyTorch's exact rule. Default: also when it
    /// exceeds the interval. They differ if the interval is lowered below the tracker: with this
    /// flag the scale then never grows.
    pub grow_on_equal: bool,
    /// Store a grown scale even if it is inf (Keras 3, Megatron-LM, DeepSpeed). Default: keep the
    /// old scale.
    pub no_finite_guard: bool,
    /// A backoff to `min_scale` or below keeps the old scale; the scale is then at its floor
    /// (fairseq).
    pub floor_exclusive: bool,
    /// Round the factors to fp32 and multiply in fp32 (Megatron-LM, ColossalAI, Paddle, Flax, jmp,
    /// Keras 3). Default: multiply in fp64 and round the product (PyTorch). They differ only for
    /// factors that are not powers of two.
    pub fp32_products: bool,
    // gen-api: end
}

// gen-api: setters gsc_scaler_options
setters!(ScalerOptions:
    init_scale: f32, min_scale: f32, max_scale: f32, growth_interval: i32, growth_factor: f64,
    backoff_factor: f64, enabled: bool, hysteresis: i32, hysteresis_refill: HysteresisRefill,
    growth_timing: GrowthTiming, overflow_tolerance: f64, recovery_threshold: f32,
    recovery_interval: i32, floor_action: FloorAction, floor_patience: i32, history_capacity:
    i32, grow_on_equal: bool, no_finite_guard: bool, floor_exclusive: bool, fp32_products:
    bool);
// gen-api: end

impl Default for ScalerOptions {
    fn default() -> Self {
        ScalerOptions {
            // gen-api: defaults gsc_scaler_options
            init_scale: 65536.0,
            min_scale: 0.0,
            max_scale: 0.0,
            growth_interval: 2000,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            enabled: true,
            hysteresis: 1,
            hysteresis_refill: HysteresisRefill::OnGrowth,
            growth_timing: GrowthTiming::AtInterval,
            overflow_tolerance: 0.0,
            recovery_threshold: 0.0,
            recovery_interval: 0,
            floor_action: FloorAction::Clamp,
            floor_patience: 1,
            history_capacity: 16,
            grow_on_equal: false,
            no_finite_guard: false,
            floor_exclusive: false,
            fp32_products: false,
            // gen-api: end
        }
    }
}

fn flags(bits: &[(bool, u32)]) -> u32 {
    bits.iter()
        .filter(|(set, _)| *set)
        .fold(0, |all, (_, bit)| all | bit)
}

impl ScalerOptions {
    /// The policy of another system, step by step.
    pub fn preset(preset: Preset) -> Result<Self> {
        Ok(Self::from_raw(&Self::init(preset)?))
    }

    fn init(preset: Preset) -> Result<sys::gsc_scaler_options> {
        let api = api()?;
        let mut raw = MaybeUninit::<sys::gsc_scaler_options>::uninit();
        let size = size_of::<sys::gsc_scaler_options>() as u32;
        check(api, unsafe {
            (api.scaler_options_init)(raw.as_mut_ptr(), size, preset as i32)
        })?;
        Ok(unsafe { raw.assume_init() })
    }

    pub(crate) fn to_raw(self) -> Result<sys::gsc_scaler_options> {
        Ok(sys::gsc_scaler_options {
            // gen-api: to_raw gsc_scaler_options
            flags: flags(&[
                (self.grow_on_equal, sys::GSC_SCALER_GROW_ON_EQUAL),
                (self.no_finite_guard, sys::GSC_SCALER_NO_FINITE_GUARD),
                (self.floor_exclusive, sys::GSC_SCALER_FLOOR_EXCLUSIVE),
                (self.fp32_products, sys::GSC_SCALER_FP32_PRODUCTS),
            ]),
            init_scale: self.init_scale,
            min_scale: self.min_scale,
            max_scale: self.max_scale,
            growth_interval: self.growth_interval,
            growth_factor: self.growth_factor,
            backoff_factor: self.backoff_factor,
            enabled: self.enabled as i32,
            hysteresis: self.hysteresis,
            hysteresis_refill: self.hysteresis_refill as i32,
            growth_timing: self.growth_timing as i32,
            overflow_tolerance: self.overflow_tolerance,
            recovery_threshold: self.recovery_threshold,
            recovery_interval: self.recovery_interval,
            floor_action: self.floor_action as i32,
            floor_patience: self.floor_patience,
            history_capacity: self.history_capacity,
            // gen-api: end
            ..Self::init(Preset::Torch)?
        })
    }

    pub(crate) fn from_raw(raw: &sys::gsc_scaler_options) -> Self {
        let default = Self::default();
        ScalerOptions {
            // gen-api: from_raw gsc_scaler_options
            init_scale: raw.init_scale,
            min_scale: raw.min_scale,
            max_scale: raw.max_scale,
            growth_interval: raw.growth_interval,
            growth_factor: raw.growth_factor,
            backoff_factor: raw.backoff_factor,
            enabled: raw.enabled != 0,
            hysteresis: raw.hysteresis,
            hysteresis_refill: raw
                .hysteresis_refill
                .try_into()
                .unwrap_or(default.hysteresis_refill),
            growth_timing: raw
                .growth_timing
                .try_into()
                .unwrap_or(default.growth_timing),
            overflow_tolerance: raw.overflow_tolerance,
            recovery_threshold: raw.recovery_threshold,
            recovery_interval: raw.recovery_interval,
            floor_action: raw.floor_action.try_into().unwrap_or(default.floor_action),
            floor_patience: raw.floor_patience,
            history_capacity: raw.history_capacity,
            grow_on_equal: raw.flags & sys::GSC_SCALER_GROW_ON_EQUAL != 0,
            no_finite_guard: raw.flags & sys::GSC_SCALER_NO_FINITE_GUARD != 0,
            floor_exclusive: raw.flags & sys::GSC_SCALER_FLOOR_EXCLUSIVE != 0,
            fp32_products: raw.flags & sys::GSC_SCALER_FP32_PRODUCTS != 0,
            // gen-api: end
        }
    }
}

/// Hyper-parameters of an [`Optimizer`](crate::Optimizer), or of a group of its tensors. What is `None` has the default
/// of the kind.
///
/// ```
/// use gradscaler::OptimizerOptions;
///
/// let options = OptimizerOptions::adamw().lr(2e-3).weight_decay(0.0);
/// assert_eq!(options.lr, Some(2e-3));
/// assert_eq!(options.beta1, None); // 0.9, AdamW's
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerOptions {
    /// The update formula.
    pub kind: OptimizerKind,
    // gen-api: optional_fields gsc_optimizer_options
    /// [`StateFormat`]: the format of state that the library allocates. State lists of the caller
    /// have their own dtypes.
    pub state_format: Option<StateFormat>,
    /// Learning rate, >= 0. All numbers here must be finite when converted to float. fp64
    /// parameters use the doubles.
    pub lr: Option<f64>,
    /// Decay of the first moment, in \[0, 1).
    pub beta1: Option<f64>,
    /// Decay of the second moment, in \[0, 1). Lion: of its state.
    pub beta2: Option<f64>,
    /// Added to the denominator, >= 0.
    pub eps: Option<f64>,
    /// Weight decay, >= 0; decoupled or added to the gradient, depending on the kind.
    pub weight_decay: Option<f64>,
    /// SGD, RMSprop: momentum, >= 0. Default 0. There is a momentum buffer if group 0 has momentum.
    /// LARS: also. Schedule-Free SGD: in (0, 1).
    pub momentum: Option<f64>,
    /// SGD: dampening of the momentum. Default 0. NovoGrad: exp_avg gets 1 - dampening of a
    /// gradient.
    pub dampening: Option<f64>,
    /// Adagrad: decay of the learning rate, >= 0. Default 0.
    pub lr_decay: Option<f64>,
    /// Adagrad: initial value of a group's `sum` in state that the library allocates, >= 0. Default
    /// 0.
    pub initial_accumulator_value: Option<f64>,
    /// Seed of stochastic rounding. Default 0.
    pub seed: Option<i64>,
    /// [`MasterFormat`]. Other values than [`MasterFormat::None`](crate::MasterFormat::None) need
    /// fp16 or bf16 parameters.
    pub master_format: Option<MasterFormat>,
    /// RMSprop: decay of the means, in \[0, 1). AdEMAMix: weight of the slow mean, >= 0.
    pub alpha: Option<f64>,
    /// Adadelta: decay of the means, in \[0, 1).
    pub rho: Option<f64>,
    /// NAdam: how fast the momentum grows, >= 0.
    pub momentum_decay: Option<f64>,
    /// RMSprop: added inside the root, >= 0. Default 0. AdaBelief: added to the second moment at
    /// each step.
    pub eps_root: Option<f64>,
    /// AdEMAMix: decay of the slow mean of gradients, in \[0, 1).
    pub beta3: Option<f64>,
    /// AdEMAMix: steps over which alpha grows from 0; Schedule-Free: lr. In 0..2^53. Default 0.
    pub warmup_steps: Option<i64>,
    /// AdEMAMix: steps over which the half-life of the slow mean grows from that of beta1, in
    /// 0..2^53. Default 0.
    pub beta3_warmup: Option<i64>,
    /// Schedule-Free: step t counts as t to this power in the average, >= 0. Default 0. The package
    /// calls it r.
    pub weight_step_power: Option<f64>,
    /// Schedule-Free: and as the largest learning rate so far to this power, >= 0.
    pub weight_lr_power: Option<f64>,
    /// LARS: factor of the ratio of norms, >= 0.
    pub trust_coefficient: Option<f64>,
    /// Any kind: decay of an exponential moving average of the parameters, in \[0, 1). Default 0.
    /// The average is the state slot `ema` if group 0 has a decay above 0, and a copy of the
    /// parameters in a group where it is 0.
    pub ema_decay: Option<f64>,
    /// SGD, LARS: Nesterov momentum; needs momentum > 0 and dampening 0.
    pub nesterov: bool,
    /// Adam, AdamW: the step is normalized by the largest exp_avg_sq so far.
    pub amsgrad: bool,
    /// Ascend instead of descend.
    pub maximize: bool,
    /// Set the gradients to zero in the same pass, also when the step is skipped. Refused with
    /// `write_grads`.
    pub zero_grads: bool,
    /// Write the unscaled and clipped gradients back in the same pass, unless the step is skipped.
    /// Refused with `zero_grads`.
    pub write_grads: bool,
    /// RMSprop: the root is of the estimated variance.
    pub centered: bool,
    /// NAdam, RAdam, AdaBelief: weight decay shrinks the parameter, instead of being added to the
    /// gradient. NovoGrad: also, exp_avg is the mean of gradients, and divided after that.
    pub decoupled_weight_decay: bool,
    /// NovoGrad: both moments are divided by 1 - beta^t.
    pub bias_correction: bool,
    /// Count the elements that a step leaves as they were: see
    /// [`Optimizer::unchanged`](crate::Optimizer::unchanged). Steps take longer.
    pub count_unchanged: bool,
    /// The decay of `ema` is at most (1 + n) / (10 + n) when a tensor has taken n steps before, as
    /// TensorFlow's ExponentialMovingAverage with num_updates.
    pub ema_warmup: bool,
    // gen-api: end
}

// gen-api: setters gsc_optimizer_options
setters!(OptimizerOptions:
    state_format: StateFormat, lr: f64, beta1: f64, beta2: f64, eps: f64, weight_decay: f64,
    momentum: f64, dampening: f64, lr_decay: f64, initial_accumulator_value: f64, seed: i64,
    master_format: MasterFormat, alpha: f64, rho: f64, momentum_decay: f64, eps_root: f64,
    beta3: f64, warmup_steps: i64, beta3_warmup: i64, weight_step_power: f64, weight_lr_power:
    f64, trust_coefficient: f64, ema_decay: f64, nesterov: bool, amsgrad: bool, maximize: bool,
    zero_grads: bool, write_grads: bool, centered: bool, decoupled_weight_decay: bool,
    bias_correction: bool, count_unchanged: bool, ema_warmup: bool);
// gen-api: end

/// AdamW with its defaults.
impl Default for OptimizerOptions {
    fn default() -> Self {
        Self::new(OptimizerKind::AdamW)
    }
}

impl OptimizerOptions {
    /// The defaults of a kind.
    pub const fn new(kind: OptimizerKind) -> Self {
        OptimizerOptions {
            kind,
            // gen-api: none gsc_optimizer_options
            state_format: None,
            lr: None,
            beta1: None,
            beta2: None,
            eps: None,
            weight_decay: None,
            momentum: None,
            dampening: None,
            lr_decay: None,
            initial_accumulator_value: None,
            seed: None,
            master_format: None,
            alpha: None,
            rho: None,
            momentum_decay: None,
            eps_root: None,
            beta3: None,
            warmup_steps: None,
            beta3_warmup: None,
            weight_step_power: None,
            weight_lr_power: None,
            trust_coefficient: None,
            ema_decay: None,
            nesterov: false,
            amsgrad: false,
            maximize: false,
            zero_grads: false,
            write_grads: false,
            centered: false,
            decoupled_weight_decay: false,
            bias_correction: false,
            count_unchanged: false,
            ema_warmup: false,
            // gen-api: end
        }
    }

    // gen-api: kinds gsc_optimizer_options
    /// Stochastic gradient descent, as torch.optim.SGD.
    pub const fn sgd() -> Self {
        Self::new(OptimizerKind::Sgd)
    }

    /// Adam, as torch.optim.Adam: weight decay is added to the gradient.
    pub const fn adam() -> Self {
        Self::new(OptimizerKind::Adam)
    }

    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019), as torch.optim.AdamW.
    pub const fn adamw() -> Self {
        Self::new(OptimizerKind::AdamW)
    }

    /// Adagrad, as torch.optim.Adagrad.
    pub const fn adagrad() -> Self {
        Self::new(OptimizerKind::Adagrad)
    }

    /// Lion (Chen et al. 2023, arXiv:2302.06675).
    pub const fn lion() -> Self {
        Self::new(OptimizerKind::Lion)
    }

    /// LAMB (You et al. 2020, arXiv:1904.00962).
    pub const fn lamb() -> Self {
        Self::new(OptimizerKind::Lamb)
    }

    /// RMSprop, as torch.optim.RMSprop; with `eps_root` in place of eps as TensorFlow's and
    /// Keras's.
    pub const fn rmsprop() -> Self {
        Self::new(OptimizerKind::RMSprop)
    }

    /// Adadelta (Zeiler 2012, arXiv:1212.5701), as torch.optim.Adadelta.
    pub const fn adadelta() -> Self {
        Self::new(OptimizerKind::Adadelta)
    }

    /// Adamax (Kingma and Ba 2015), as torch.optim.Adamax.
    pub const fn adamax() -> Self {
        Self::new(OptimizerKind::Adamax)
    }

    /// NAdam (Dozat 2016), as torch.optim.NAdam.
    pub const fn nadam() -> Self {
        Self::new(OptimizerKind::NAdam)
    }

    /// RAdam (Liu et al. 2020, arXiv:1908.03265), as torch.optim.RAdam.
    pub const fn radam() -> Self {
        Self::new(OptimizerKind::RAdam)
    }

    /// AdaBelief (Zhuang et al. 2020, arXiv:2010.07468), as optax.adabelief.
    pub const fn adabelief() -> Self {
        Self::new(OptimizerKind::AdaBelief)
    }

    /// AdEMAMix (Pagliardini et al. 2024, arXiv:2409.03137).
    pub const fn ademamix() -> Self {
        Self::new(OptimizerKind::AdEMAMix)
    }

    /// Schedule-Free AdamW (Defazio et al. 2024, arXiv:2405.15682), as in the package schedulefree.
    pub const fn adamw_schedule_free() -> Self {
        Self::new(OptimizerKind::AdamwScheduleFree)
    }

    /// Schedule-Free SGD (Defazio et al. 2024), as in the package schedulefree.
    pub const fn sgd_schedule_free() -> Self {
        Self::new(OptimizerKind::SgdScheduleFree)
    }

    /// LARS (You et al. 2017, arXiv:1708.03888), as optax.lars.
    pub const fn lars() -> Self {
        Self::new(OptimizerKind::Lars)
    }

    /// NovoGrad (Ginsburg et al. 2019, arXiv:1905.11286), as optax.novograd.
    pub const fn novograd() -> Self {
        Self::new(OptimizerKind::NovoGrad)
    }
    // gen-api: end

    pub(crate) fn to_raw(self) -> Result<sys::gsc_optimizer_options> {
        let api = api()?;
        let mut raw = MaybeUninit::<sys::gsc_optimizer_options>::uninit();
        let size = size_of::<sys::gsc_optimizer_options>() as u32;
        check(api, unsafe {
            (api.optimizer_options_init)(raw.as_mut_ptr(), size, self.kind as i32)
        })?;
        let raw = unsafe { raw.assume_init() };
        Ok(sys::gsc_optimizer_options {
            // gen-api: optional_to_raw gsc_optimizer_options
            flags: flags(&[
                (self.nesterov, sys::GSC_OPTIMIZER_NESTEROV),
                (self.amsgrad, sys::GSC_OPTIMIZER_AMSGRAD),
                (self.maximize, sys::GSC_OPTIMIZER_MAXIMIZE),
                (self.zero_grads, sys::GSC_OPTIMIZER_ZERO_GRADS),
                (self.write_grads, sys::GSC_OPTIMIZER_WRITE_GRADS),
                (self.centered, sys::GSC_OPTIMIZER_CENTERED),
                (
                    self.decoupled_weight_decay,
                    sys::GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY,
                ),
                (self.bias_correction, sys::GSC_OPTIMIZER_BIAS_CORRECTION),
                (self.count_unchanged, sys::GSC_OPTIMIZER_COUNT_UNCHANGED),
                (self.ema_warmup, sys::GSC_OPTIMIZER_EMA_WARMUP),
            ]),
            state_format: self
                .state_format
                .map(|value| value as i32)
                .unwrap_or(raw.state_format),
            lr: self.lr.unwrap_or(raw.lr),
            beta1: self.beta1.unwrap_or(raw.beta1),
            beta2: self.beta2.unwrap_or(raw.beta2),
            eps: self.eps.unwrap_or(raw.eps),
            weight_decay: self.weight_decay.unwrap_or(raw.weight_decay),
            momentum: self.momentum.unwrap_or(raw.momentum),
            dampening: self.dampening.unwrap_or(raw.dampening),
            lr_decay: self.lr_decay.unwrap_or(raw.lr_decay),
            initial_accumulator_value: self
                .initial_accumulator_value
                .unwrap_or(raw.initial_accumulator_value),
            seed: self.seed.unwrap_or(raw.seed),
            master_format: self
                .master_format
                .map(|value| value as i32)
                .unwrap_or(raw.master_format),
            alpha: self.alpha.unwrap_or(raw.alpha),
            rho: self.rho.unwrap_or(raw.rho),
            momentum_decay: self.momentum_decay.unwrap_or(raw.momentum_decay),
            eps_root: self.eps_root.unwrap_or(raw.eps_root),
            beta3: self.beta3.unwrap_or(raw.beta3),
            warmup_steps: self.warmup_steps.unwrap_or(raw.warmup_steps),
            beta3_warmup: self.beta3_warmup.unwrap_or(raw.beta3_warmup),
            weight_step_power: self.weight_step_power.unwrap_or(raw.weight_step_power),
            weight_lr_power: self.weight_lr_power.unwrap_or(raw.weight_lr_power),
            trust_coefficient: self.trust_coefficient.unwrap_or(raw.trust_coefficient),
            ema_decay: self.ema_decay.unwrap_or(raw.ema_decay),
            // gen-api: end
            ..raw
        })
    }

    pub(crate) fn from_raw(raw: &sys::gsc_optimizer_options) -> Self {
        OptimizerOptions {
            kind: raw.kind.try_into().unwrap_or(OptimizerKind::AdamW),
            // gen-api: optional_from_raw gsc_optimizer_options
            state_format: raw.state_format.try_into().ok(),
            lr: Some(raw.lr),
            beta1: Some(raw.beta1),
            beta2: Some(raw.beta2),
            eps: Some(raw.eps),
            weight_decay: Some(raw.weight_decay),
            momentum: Some(raw.momentum),
            dampening: Some(raw.dampening),
            lr_decay: Some(raw.lr_decay),
            initial_accumulator_value: Some(raw.initial_accumulator_value),
            seed: Some(raw.seed),
            master_format: raw.master_format.try_into().ok(),
            alpha: Some(raw.alpha),
            rho: Some(raw.rho),
            momentum_decay: Some(raw.momentum_decay),
            eps_root: Some(raw.eps_root),
            beta3: Some(raw.beta3),
            warmup_steps: Some(raw.warmup_steps),
            beta3_warmup: Some(raw.beta3_warmup),
            weight_step_power: Some(raw.weight_step_power),
            weight_lr_power: Some(raw.weight_lr_power),
            trust_coefficient: Some(raw.trust_coefficient),
            ema_decay: Some(raw.ema_decay),
            nesterov: raw.flags & sys::GSC_OPTIMIZER_NESTEROV != 0,
            amsgrad: raw.flags & sys::GSC_OPTIMIZER_AMSGRAD != 0,
            maximize: raw.flags & sys::GSC_OPTIMIZER_MAXIMIZE != 0,
            zero_grads: raw.flags & sys::GSC_OPTIMIZER_ZERO_GRADS != 0,
            write_grads: raw.flags & sys::GSC_OPTIMIZER_WRITE_GRADS != 0,
            centered: raw.flags & sys::GSC_OPTIMIZER_CENTERED != 0,
            decoupled_weight_decay: raw.flags & sys::GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY != 0,
            bias_correction: raw.flags & sys::GSC_OPTIMIZER_BIAS_CORRECTION != 0,
            count_unchanged: raw.flags & sys::GSC_OPTIMIZER_COUNT_UNCHANGED != 0,
            ema_warmup: raw.flags & sys::GSC_OPTIMIZER_EMA_WARMUP != 0,
            // gen-api: end
        }
    }
}
