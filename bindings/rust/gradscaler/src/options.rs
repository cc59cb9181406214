// SPDX-License-Identifier: Apache-2.0
// The methods of the options of a scaler and of an optimizer. Their fields are in mirrors.rs.
use crate::error::check;
use crate::library::api;
use crate::mirrors::Mirror;
use crate::{OptimizerKind, OptimizerOptions, Preset, Result, ScalerOptions};
use gradscaler_sys as sys;

impl ScalerOptions {
    /// The policy of another system, step by step.
    ///
    /// ```
    /// use gradscaler::{Preset, ScalerOptions};
    ///
    /// let options = ScalerOptions::default().init_scale(1024.0).growth_interval(100);
    /// assert_eq!(options, ScalerOptions { init_scale: 1024.0, growth_interval: 100, ..Default::default() });
    /// assert_eq!(ScalerOptions::preset(Preset::Torch)?, ScalerOptions::default());
    /// # Ok::<(), gradscaler::Error>(())
    /// ```
    pub fn preset(preset: Preset) -> Result<Self> {
        Ok(Self::read(&Self::init(preset)?))
    }

    fn init(preset: Preset) -> Result<sys::gsc_scaler_options> {
        let api = api()?;
        let mut raw = empty!(gsc_scaler_options);
        check(api, unsafe { (api.scaler_options_init)(&mut raw, raw.struct_size, preset as i32) })?;
        Ok(raw)
    }

    pub(crate) fn to_raw(self) -> Result<sys::gsc_scaler_options> {
        let mut raw = Self::init(Preset::Torch)?;
        self.write(&mut raw);
        Ok(raw)
    }
}

impl OptimizerOptions {
    /// The defaults of a kind.
    ///
    /// ```
    /// use gradscaler::OptimizerOptions;
    ///
    /// let options = OptimizerOptions::adamw().lr(2e-3).weight_decay(0.0);
    /// assert_eq!(options.lr, Some(2e-3));
    /// assert_eq!(options.beta1, None); // 0.9, AdamW's
    /// ```
    pub const fn new(kind: OptimizerKind) -> Self {
        OptimizerOptions { kind, ..Self::DEFAULT }
    }

    pub(crate) fn to_raw(self) -> Result<sys::gsc_optimizer_options> {
        let api = api()?;
        let mut raw = empty!(gsc_optimizer_options);
        check(api, unsafe { (api.optimizer_options_init)(&mut raw, raw.struct_size, self.kind as i32) })?;
        self.write(&mut raw);
        Ok(raw)
    }
}
