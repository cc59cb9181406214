// SPDX-License-Identifier: Apache-2.0
// What a scaler tells about itself: reports, history, addresses, and the state for a checkpoint.
use crate::{Error, Result, Status};
use gradscaler_sys as sys;
use std::mem::{size_of, MaybeUninit};
use std::ptr;

/// The state of a scaler, and the result of the last check of its gradients.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// An inf or NaN was found: the step was, or will be, skipped.
    pub overflow: bool,
    /// The scale cannot be lowered further and `floor_patience` is used up.
    pub at_floor: bool,
    /// The scale now.
    pub scale: f32,
    /// Clean steps since the scale last changed.
    pub growth_tracker: i32,
    /// Overflows left before the scale backs off.
    pub hysteresis_tracker: i32,
    /// Skipped updates in a row up to now.
    pub consecutive_skips: i32,
    /// Updates since creation or restore.
    pub updates: u64,
    /// Of these, the ones that found an overflow.
    pub skipped: u64,
    /// L2 norm of the unscaled gradients before clipping; inf or NaN if they overflowed. Over all ranks with a reducer.
    pub grad_norm: f64,
    /// Largest magnitude of the unscaled gradients of this rank that are finite.
    pub grad_amax: f64,
    /// Non-finite gradients, over all ranks with a reducer.
    pub nonfinite_count: u64,
    /// Of this rank's: +inf, -inf, and values that become inf when unscaled.
    pub inf_count: u64,
    /// Of this rank's.
    pub nan_count: u64,
    /// Index in its list of the first tensor with a non-finite gradient on this rank.
    pub first_tensor: Option<usize>,
    /// Index in that tensor of its first non-finite gradient.
    pub first_element: Option<usize>,
}

impl From<&sys::gsc_report> for Report {
    fn from(raw: &sys::gsc_report) -> Self {
        Report {
            overflow: raw.flags & sys::GSC_REPORT_OVERFLOW != 0,
            at_floor: raw.flags & sys::GSC_REPORT_AT_FLOOR != 0,
            scale: raw.scale,
            growth_tracker: raw.growth_tracker,
            hysteresis_tracker: raw.hysteresis_tracker,
            consecutive_skips: raw.consecutive_skips,
            updates: raw.updates as u64,
            skipped: raw.skipped as u64,
            grad_norm: raw.grad_norm,
            grad_amax: raw.grad_amax,
            nonfinite_count: raw.nonfinite_count as u64,
            inf_count: raw.inf_count as u64,
            nan_count: raw.nan_count as u64,
            first_tensor: usize::try_from(raw.first_tensor).ok(),
            first_element: usize::try_from(raw.first_element).ok(),
        }
    }
}

/// One update in the history.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// Number of the update, counted from 0 since creation.
    pub update: u64,
    /// As in [`Report`], over all lists of that update.
    pub grad_norm: f64,
    /// As in [`Report`].
    pub nonfinite_count: u64,
    /// The scale that update left behind.
    pub scale: f32,
    /// Whether that update found an overflow.
    pub overflow: bool,
}

impl From<&sys::gsc_history_entry> for HistoryEntry {
    fn from(raw: &sys::gsc_history_entry) -> Self {
        HistoryEntry {
            update: raw.update as u64,
            grad_norm: raw.grad_norm,
            nonfinite_count: raw.nonfinite_count as u64,
            scale: raw.scale,
            overflow: raw.overflow != 0,
        }
    }
}

/// Addresses of numbers in memory of the scaler's device, for kernels of your own. Valid as long as the scaler.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DeviceState {
    /// The scale.
    pub scale: *const f32,
    /// 1 / scale, in fp32.
    pub inv_scale: *const f32,
    /// Clean steps since the scale last changed.
    pub growth_tracker: *const i32,
    /// Overflows left before the scale backs off.
    pub hysteresis_tracker: *const i32,
    /// Of the list that was asked for: the number of non-finite gradients; else NULL.
    pub found_inf: *const f32,
    /// Of the list that was asked for: as [`Report::grad_norm`]; else NULL.
    pub grad_norm: *const f64,
}

impl From<&sys::gsc_device_state> for DeviceState {
    fn from(raw: &sys::gsc_device_state) -> Self {
        DeviceState {
            scale: raw.scale,
            inv_scale: raw.inv_scale,
            growth_tracker: raw.growth_tracker,
            hysteresis_tracker: raw.hysteresis_tracker,
            found_inf: raw.found_inf,
            grad_norm: raw.grad_norm,
        }
    }
}

/// Everything of a scaler that a checkpoint needs. Keep the fields, or the bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalerState {
    /// The scale is multiplied by this to grow.
    pub growth_factor: f64,
    /// The scale is multiplied by this on overflow.
    pub backoff_factor: f64,
    /// The scale.
    pub scale: f32,
    /// Clean steps between growths.
    pub growth_interval: i32,
    /// PyTorch's `_growth_tracker`.
    pub growth_tracker: i32,
    /// Overflows left before the scale backs off.
    pub hysteresis_tracker: i32,
    /// For the overflow tolerance.
    pub overflows_since_rescale: i32,
    /// For the overflow tolerance.
    pub updates_since_rescale: i32,
    /// Skipped updates in a row.
    pub consecutive_skips: i32,
    /// Consecutive overflows that found the scale unable to go lower.
    pub skips_at_floor: i32,
    /// Updates so far.
    pub updates: i64,
    /// Of these, the ones that found an overflow.
    pub skipped: i64,
}

impl ScalerState {
    const SIZE: usize = size_of::<sys::gsc_scaler_state>();

    /// The library's struct of fixed layout, byte for byte, as every language writes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let raw = self.to_raw();
        let mut bytes = vec![0; Self::SIZE];
        // It has no padding.
        unsafe {
            ptr::copy_nonoverlapping(
                (&raw as *const sys::gsc_scaler_state).cast(),
                bytes.as_mut_ptr(),
                Self::SIZE,
            )
        };
        bytes
    }

    /// Reads what [`ScalerState::to_bytes`] wrote on a machine of the same byte order. The values are judged by
    /// [`GradScaler::set_state`](crate::GradScaler::set_state). Errors: `InvalidArgument` for other data.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let refuse = |what: &str| {
            Err(Error::new(
                Status::InvalidArgument,
                format!("bytes: {}", what),
            ))
        };
        if bytes.len() != Self::SIZE {
            return refuse(&format!(
                "a scaler's state has {}, these are {}",
                Self::SIZE,
                bytes.len()
            ));
        }
        let mut raw = MaybeUninit::<sys::gsc_scaler_state>::uninit();
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), raw.as_mut_ptr().cast(), Self::SIZE) };
        let raw = unsafe { raw.assume_init() };
        if raw.struct_size as usize != Self::SIZE || raw.format != sys::GSC_SCALER_STATE_FORMAT {
            return refuse("not the state of a scaler");
        }
        Ok(Self::from_raw(&raw))
    }

    pub(crate) fn to_raw(self) -> sys::gsc_scaler_state {
        sys::gsc_scaler_state {
            struct_size: Self::SIZE as u32,
            format: sys::GSC_SCALER_STATE_FORMAT,
            growth_factor: self.growth_factor,
            backoff_factor: self.backoff_factor,
            scale: self.scale,
            growth_interval: self.growth_interval,
            growth_tracker: self.growth_tracker,
            hysteresis_tracker: self.hysteresis_tracker,
            overflows_since_rescale: self.overflows_since_rescale,
            updates_since_rescale: self.updates_since_rescale,
            consecutive_skips: self.consecutive_skips,
            skips_at_floor: self.skips_at_floor,
            updates: self.updates,
            skipped: self.skipped,
        }
    }

    pub(crate) fn from_raw(raw: &sys::gsc_scaler_state) -> Self {
        ScalerState {
            growth_factor: raw.growth_factor,
            backoff_factor: raw.backoff_factor,
            scale: raw.scale,
            growth_interval: raw.growth_interval,
            growth_tracker: raw.growth_tracker,
            hysteresis_tracker: raw.hysteresis_tracker,
            overflows_since_rescale: raw.overflows_since_rescale,
            updates_since_rescale: raw.updates_since_rescale,
            consecutive_skips: raw.consecutive_skips,
            skips_at_floor: raw.skips_at_floor,
            updates: raw.updates,
            skipped: raw.skipped,
        }
    }
}
