// SPDX-License-Identifier: Apache-2.0
// The policy of a scaler and the hyper-parameters of an optimizer: plain structs with a method per field, for
// `ScalerOptions::default().init_scale(1024.0)`. Two macros make everything of a struct from its rows.
use crate::error::check;
use crate::library::api;
use crate::{
    FloorAction, GrowthTiming, HysteresisRefill, MasterFormat, OptimizerKind, Preset, Result,
    StateFormat,
};
use gradscaler_sys as sys;
use std::mem::{size_of, MaybeUninit};

/// A value of an option and of its field in the C struct.
pub(crate) trait Value: Sized {
    type Raw;
    fn into_raw(self) -> Self::Raw;
    /// None for a code that a later library has.
    fn from_raw(raw: Self::Raw) -> Option<Self>;
}

macro_rules! numbers {
    ($($type:ident),*) => {$(
        impl Value for $type {
            type Raw = $type;

            fn into_raw(self) -> $type {
                self
            }

            fn from_raw(raw: $type) -> Option<$type> {
                Some(raw)
            }
        }
    )*};
}
numbers!(f32, f64, i32, i64);

impl Value for bool {
    type Raw = i32;

    fn into_raw(self) -> i32 {
        self as i32
    }

    fn from_raw(raw: i32) -> Option<bool> {
        Some(raw != 0)
    }
}

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

/// A struct whose fields have defaults, with what a C struct of the same fields becomes.
macro_rules! options {
    ($(#[$meta:meta])* $name:ident of $raw:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty = $default:expr,)*
    } flags { $($(#[$text:meta])* $flag:ident = $bit:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
            $($(#[$text])* pub $flag: bool,)*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default,)* $($flag: false,)* }
            }
        }

        setters!($name: $($field: $type,)* $($flag: bool),*);

        impl $name {
            fn write(self, raw: &mut sys::$raw) {
                $(raw.$field = self.$field.into_raw();)*
                raw.flags = 0 $(| if self.$flag { sys::$bit } else { 0 })*;
            }

            pub(crate) fn from_raw(raw: &sys::$raw) -> Self {
                let default = Self::default();
                $name {
                    $($field: Value::from_raw(raw.$field).unwrap_or(default.$field),)*
                    $($flag: raw.flags & sys::$bit != 0,)*
                }
            }
        }
    };
}

/// The same with fields that may be None, whose defaults a kind has.
macro_rules! optional {
    ($(#[$meta:meta])* $name:ident of $raw:ident {
        $(#[$first:meta])* $kind:ident: $kinds:ident,
        $($(#[$doc:meta])* $field:ident: $type:ty,)*
    } flags { $($(#[$text:meta])* $flag:ident = $bit:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name {
            $(#[$first])* pub $kind: $kinds,
            $($(#[$doc])* pub $field: Option<$type>,)*
            $($(#[$text])* pub $flag: bool,)*
        }

        setters!($name: $($field: $type,)* $($flag: bool),*);

        impl $name {
            /// The defaults of a kind.
            pub const fn new($kind: $kinds) -> Self {
                $name { $kind, $($field: None,)* $($flag: false,)* }
            }

            fn write(self, raw: &mut sys::$raw) {
                $(if let Some(value) = self.$field {
                    raw.$field = value.into_raw();
                })*
                raw.flags = 0 $(| if self.$flag { sys::$bit } else { 0 })*;
            }

            pub(crate) fn from_raw(raw: &sys::$raw) -> Self {
                $name {
                    $kind: Value::from_raw(raw.$kind).unwrap_or($kinds::AdamW),
                    $($field: Value::from_raw(raw.$field),)*
                    $($flag: raw.flags & sys::$bit != 0,)*
                }
            }
        }
    };
}

/// Constructors of the kinds.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $kind:ident,)*) => {
        impl OptimizerOptions {
            $(
                $(#[$doc])*
                pub const fn $name() -> Self {
                    Self::new(OptimizerKind::$kind)
                }
            )*
        }
    };
}

options! {
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
    ScalerOptions of gsc_scaler_options {
        // gen-api: default_rows gsc_scaler_options
        /// First scale, finite and > 0, within `min_scale` and `max_scale`. Default 65536.
        init_scale: f32 = 65536.0,
        /// Floor of the scale; 0: none. Default 0. A scale that
        /// [`GradScaler::set_scale`](crate::GradScaler::set_scale) sets below it stays until it
        /// grows.
        min_scale: f32 = 0.0,
        /// Ceiling of the scale; 0: none. Default 0.
        max_scale: f32 = 0.0,
        /// Clean steps between growths, >= 1. Default 2000.
        growth_interval: i32 = 2000,
        /// Growth multiplies the scale by this, > 1. Refused if `init_scale` rounds back to itself.
        /// Default 2.
        growth_factor: f64 = 2.0,
        /// Backoff multiplies the scale by this, in (0, 1). Refused if `init_scale` rounds back to
        /// itself. Default 0.5.
        backoff_factor: f64 = 0.5,
        /// False: disabled. The scale is 1, gradients are not checked, every step is applied.
        /// Default true.
        enabled: bool = true,
        /// Overflows until the scale backs off, >= 1. Default 1: each overflow.
        hysteresis: i32 = 1,
        /// When the count of overflows starts again: [`HysteresisRefill`]. Default
        /// [`HysteresisRefill::OnGrowth`](crate::HysteresisRefill::OnGrowth).
        hysteresis_refill: HysteresisRefill = HysteresisRefill::OnGrowth,
        /// The clean step that grows: [`GrowthTiming`]. Default
        /// [`GrowthTiming::AtInterval`](crate::GrowthTiming::AtInterval).
        growth_timing: GrowthTiming = GrowthTiming::AtInterval,
        /// Back off only if overflows / updates since the last rescale >= this, in \[0, 1\]
        /// (fairseq). Default 0.
        overflow_tolerance: f64 = 0.0,
        /// While the scale is below this, `recovery_interval` replaces `growth_interval` (NVIDIA
        /// Modulus); 0: never. Default 0.
        recovery_threshold: f32 = 0.0,
        /// See `recovery_threshold`; >= 1 if that is set. Default 0.
        recovery_interval: i32 = 0,
        /// What happens at the floor: [`FloorAction`]. Default
        /// [`FloorAction::Clamp`](crate::FloorAction::Clamp).
        floor_action: FloorAction = FloorAction::Clamp,
        /// Consecutive skipped updates at the floor until it is reported, >= 1. Default 1.
        floor_patience: i32 = 1,
        /// Updates kept in the history ring, 0..2^20. Creation allocates 32 bytes of device memory
        /// for each. Default 16, which shows what led to a skip. To plot the scale, give the number
        /// of steps between two reads.
        history_capacity: i32 = 16,
        // gen-api: end
    } flags {
        // gen-api: flag_rows gsc_scaler_options
        /// Grow only when the tracker equals the interval: PyTorch's exact rule. Default: also when
        /// it exceeds the interval. They differ if the interval is lowered below the tracker: with
        /// this flag the scale then never grows.
        grow_on_equal = GSC_SCALER_GROW_ON_EQUAL,
        /// Store a grown scale even if it is inf (Keras 3, Megatron-LM, DeepSpeed). Default: keep
        /// the old scale.
        no_finite_guard = GSC_SCALER_NO_FINITE_GUARD,
        /// A backoff to `min_scale` or below keeps the old scale; the scale is then at its floor
        /// (fairseq).
        floor_exclusive = GSC_SCALER_FLOOR_EXCLUSIVE,
        /// Round the factors to fp32 and multiply in fp32 (Megatron-LM, ColossalAI, Paddle, Flax,
        /// jmp, Keras 3). Default: multiply in fp64 and round the product (PyTorch). They differ
        /// only for factors that are not powers of two.
        fp32_products = GSC_SCALER_FP32_PRODUCTS,
        // gen-api: end
    }
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
        let mut raw = Self::init(Preset::Torch)?;
        self.write(&mut raw);
        Ok(raw)
    }
}

optional! {
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
    OptimizerOptions of gsc_optimizer_options {
        /// The update formula.
        kind: OptimizerKind,
        // gen-api: rows gsc_optimizer_options
        /// [`StateFormat`]: the format of state that the library allocates. State lists of the
        /// caller have their own dtypes.
        state_format: StateFormat,
        /// Learning rate, >= 0. All numbers here must be finite when converted to float. fp64
        /// parameters use the doubles.
        lr: f64,
        /// Decay of the first moment, in \[0, 1).
        beta1: f64,
        /// Decay of the second moment, in \[0, 1). Lion: of its state.
        beta2: f64,
        /// Added to the denominator, >= 0.
        eps: f64,
        /// Weight decay, >= 0; decoupled or added to the gradient, depending on the kind.
        weight_decay: f64,
        /// SGD, RMSprop: momentum, >= 0. Default 0. There is a momentum buffer if group 0 has
        /// momentum. LARS: also. Schedule-Free SGD: in (0, 1).
        momentum: f64,
        /// SGD: dampening of the momentum. Default 0. NovoGrad: exp_avg gets 1 - dampening of a
        /// gradient.
        dampening: f64,
        /// Adagrad: decay of the learning rate, >= 0. Default 0.
        lr_decay: f64,
        /// Adagrad: initial value of a group's `sum` in state that the library allocates, >= 0.
        /// Default 0.
        initial_accumulator_value: f64,
        /// Seed of stochastic rounding. Default 0.
        seed: i64,
        /// [`MasterFormat`]. Other values than [`MasterFormat::None`](crate::MasterFormat::None)
        /// need fp16 or bf16 parameters.
        master_format: MasterFormat,
        /// RMSprop: decay of the means, in \[0, 1). AdEMAMix: weight of the slow mean, >= 0.
        alpha: f64,
        /// Adadelta: decay of the means, in \[0, 1).
        rho: f64,
        /// NAdam: how fast the momentum grows, >= 0.
        momentum_decay: f64,
        /// RMSprop: added inside the root, >= 0. Default 0. AdaBelief: added to the second moment
        /// at each step.
        eps_root: f64,
        /// AdEMAMix: decay of the slow mean of gradients, in \[0, 1).
        beta3: f64,
        /// AdEMAMix: steps over which alpha grows from 0; Schedule-Free: lr. In 0..2^53. Default 0.
        warmup_steps: i64,
        /// AdEMAMix: steps over which the half-life of the slow mean grows from that of beta1, in
        /// 0..2^53. Default 0.
        beta3_warmup: i64,
        /// Schedule-Free: step t counts as t to this power in the average, >= 0. Default 0. The
        /// package calls it r.
        weight_step_power: f64,
        /// Schedule-Free: and as the largest learning rate so far to this power, >= 0.
        weight_lr_power: f64,
        /// LARS: factor of the ratio of norms, >= 0.
        trust_coefficient: f64,
        /// Any kind: decay of an exponential moving average of the parameters, in \[0, 1). Default
        /// 0. The average is the state slot `ema` if group 0 has a decay above 0, and a copy of the
        /// parameters in a group where it is 0.
        ema_decay: f64,
        // gen-api: end
    } flags {
        // gen-api: flag_rows gsc_optimizer_options
        /// SGD, LARS: Nesterov momentum; needs momentum > 0 and dampening 0.
        nesterov = GSC_OPTIMIZER_NESTEROV,
        /// Adam, AdamW: the step is normalized by the largest exp_avg_sq so far.
        amsgrad = GSC_OPTIMIZER_AMSGRAD,
        /// Ascend instead of descend.
        maximize = GSC_OPTIMIZER_MAXIMIZE,
        /// Set the gradients to zero in the same pass, also when the step is skipped. Refused with
        /// `write_grads`.
        zero_grads = GSC_OPTIMIZER_ZERO_GRADS,
        /// Write the unscaled and clipped gradients back in the same pass, unless the step is
        /// skipped. Refused with `zero_grads`.
        write_grads = GSC_OPTIMIZER_WRITE_GRADS,
        /// RMSprop: the root is of the estimated variance.
        centered = GSC_OPTIMIZER_CENTERED,
        /// NAdam, RAdam, AdaBelief: weight decay shrinks the parameter, instead of being added to
        /// the gradient. NovoGrad: also, exp_avg is the mean of gradients, and divided after that.
        decoupled_weight_decay = GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY,
        /// NovoGrad: both moments are divided by 1 - beta^t.
        bias_correction = GSC_OPTIMIZER_BIAS_CORRECTION,
        /// Count the elements that a step leaves as they were: see
        /// [`Optimizer::unchanged`](crate::Optimizer::unchanged). Steps take longer.
        count_unchanged = GSC_OPTIMIZER_COUNT_UNCHANGED,
        /// The decay of `ema` is at most (1 + n) / (10 + n) when a tensor has taken n steps before,
        /// as TensorFlow's ExponentialMovingAverage with num_updates.
        ema_warmup = GSC_OPTIMIZER_EMA_WARMUP,
        // gen-api: end
    }
}

kinds! {
    // gen-api: kinds gsc_optimizer_options
    /// Stochastic gradient descent, as torch.optim.SGD.
    sgd = Sgd,
    /// Adam, as torch.optim.Adam: weight decay is added to the gradient.
    adam = Adam,
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019), as torch.optim.AdamW.
    adamw = AdamW,
    /// Adagrad, as torch.optim.Adagrad.
    adagrad = Adagrad,
    /// Lion (Chen et al. 2023, arXiv:2302.06675).
    lion = Lion,
    /// LAMB (You et al. 2020, arXiv:1904.00962).
    lamb = Lamb,
    /// RMSprop, as torch.optim.RMSprop; with `eps_root` in place of eps as TensorFlow's and
    /// Keras's.
    rmsprop = RMSprop,
    /// Adadelta (Zeiler 2012, arXiv:1212.5701), as torch.optim.Adadelta.
    adadelta = Adadelta,
    /// Adamax (Kingma and Ba 2015), as torch.optim.Adamax.
    adamax = Adamax,
    /// NAdam (Dozat 2016), as torch.optim.NAdam.
    nadam = NAdam,
    /// RAdam (Liu et al. 2020, arXiv:1908.03265), as torch.optim.RAdam.
    radam = RAdam,
    /// AdaBelief (Zhuang et al. 2020, arXiv:2010.07468), as optax.adabelief.
    adabelief = AdaBelief,
    /// AdEMAMix (Pagliardini et al. 2024, arXiv:2409.03137).
    ademamix = AdEMAMix,
    /// Schedule-Free AdamW (Defazio et al. 2024, arXiv:2405.15682), as in the package schedulefree.
    adamw_schedule_free = AdamwScheduleFree,
    /// Schedule-Free SGD (Defazio et al. 2024), as in the package schedulefree.
    sgd_schedule_free = SgdScheduleFree,
    /// LARS (You et al. 2017, arXiv:1708.03888), as optax.lars.
    lars = Lars,
    /// NovoGrad (Ginsburg et al. 2019, arXiv:1905.11286), as optax.novograd.
    novograd = NovoGrad,
    // gen-api: end
}

/// AdamW with its defaults.
impl Default for OptimizerOptions {
    fn default() -> Self {
        Self::new(OptimizerKind::AdamW)
    }
}

impl OptimizerOptions {
    pub(crate) fn to_raw(self) -> Result<sys::gsc_optimizer_options> {
        let api = api()?;
        let mut raw = MaybeUninit::<sys::gsc_optimizer_options>::uninit();
        let size = size_of::<sys::gsc_optimizer_options>() as u32;
        check(api, unsafe {
            (api.optimizer_options_init)(raw.as_mut_ptr(), size, self.kind as i32)
        })?;
        let mut raw = unsafe { raw.assume_init() };
        self.write(&mut raw);
        Ok(raw)
    }
}
