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
    // gen-api: counted_fields gsc_report
    /// An inf or NaN was found: the step was, or will be, skipped.
    pub overflow: bool,
    /// The scale cannot be lowered further and `floor_patience` has run out (needs
    /// [`FloorAction::Report`](crate::FloorAction::Report) or
    /// [`FloorAction::Error`](crate::FloorAction::Error)).
    pub at_floor: bool,
    /// The scale now.
    pub scale: f32,
    /// Clean steps since the scale last changed.
    pub growth_tracker: i32,
    /// Overflows left before the scale backs off.
    pub hysteresis_tracker: i32,
    /// Skipped updates in a row, the last one included; 0 if it was clean.
    pub consecutive_skips: i32,
    /// Updates so far, including those of a restored state.
    pub updates: u64,
    /// How many of these found an overflow.
    pub skipped: u64,
    /// L2 norm of the unscaled gradients before clipping; inf or NaN if they overflowed. With a
    /// reducer, over all ranks.
    pub grad_norm: f64,
    /// Largest magnitude of this rank's unscaled gradients. Gradients stored as inf or NaN do not
    /// count.
    pub grad_amax: f64,
    /// Number of non-finite gradients; with a reducer, over all ranks.
    pub nonfinite_count: u64,
    /// Of these, on this rank: +inf, -inf, and values that become inf when unscaled.
    pub inf_count: u64,
    /// Of these, on this rank: NaN.
    pub nan_count: u64,
    /// Index in its list of the first tensor with a non-finite gradient on this rank.
    pub first_tensor: Option<usize>,
    /// Index in that tensor of its first non-finite gradient.
    pub first_element: Option<usize>,
    // gen-api: end
}

impl From<&sys::gsc_report> for Report {
    fn from(raw: &sys::gsc_report) -> Self {
        Report {
            // gen-api: counted_from_raw gsc_report
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
            // gen-api: end
        }
    }
}

/// One update in the history.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct HistoryEntry {
    // gen-api: counted_fields gsc_history_entry
    /// Number of the update, counted from 0, including those of a restored state.
    pub update: u64,
    /// L2 norm of the unscaled gradients of all its lists.
    pub grad_norm: f64,
    /// Number of non-finite gradients in all its lists.
    pub nonfinite_count: u64,
    /// The scale after that update.
    pub scale: f32,
    /// Whether that update found an overflow.
    pub overflow: bool,
    // gen-api: end
}

impl From<&sys::gsc_history_entry> for HistoryEntry {
    fn from(raw: &sys::gsc_history_entry) -> Self {
        HistoryEntry {
            // gen-api: counted_from_raw gsc_history_entry
            update: raw.update as u64,
            grad_norm: raw.grad_norm,
            nonfinite_count: raw.nonfinite_count as u64,
            scale: raw.scale,
            overflow: raw.overflow != 0,
            // gen-api: end
        }
    }
}

/// Addresses of numbers in memory of the scaler's device, for your own kernels. Valid as long as the scaler.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DeviceState {
    // gen-api: fields gsc_device_state
    /// The scale.
    pub scale: *const f32,
    /// 1 / scale, computed in fp64 and rounded.
    pub inv_scale: *const f32,
    /// Clean steps since the scale last changed.
    pub growth_tracker: *const i32,
    /// Overflows left before the scale backs off.
    pub hysteresis_tracker: *const i32,
    /// Number of non-finite gradients of the given list, as a float. NULL if no list was given.
    pub found_inf: *const f32,
    /// L2 norm of the unscaled gradients of the given list. NULL if no list was given.
    pub grad_norm: *const f64,
    // gen-api: end
}

impl From<&sys::gsc_device_state> for DeviceState {
    fn from(raw: &sys::gsc_device_state) -> Self {
        DeviceState {
            // gen-api: from_raw gsc_device_state
            scale: raw.scale,
            inv_scale: raw.inv_scale,
            growth_tracker: raw.growth_tracker,
            hysteresis_tracker: raw.hysteresis_tracker,
            found_inf: raw.found_inf,
            grad_norm: raw.grad_norm,
            // gen-api: end
        }
    }
}

/// Everything of a scaler that a checkpoint needs. Keep the fields, or the bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalerState {
    // gen-api: fields gsc_scaler_state
    /// Growth multiplies the scale by this.
    pub growth_factor: f64,
    /// Backoff multiplies the scale by this.
    pub backoff_factor: f64,
    /// The scale.
    pub scale: f32,
    /// Clean steps between growths.
    pub growth_interval: i32,
    /// Clean steps since the scale last changed: PyTorch's _growth_tracker.
    pub growth_tracker: i32,
    /// Overflows left before the scale backs off.
    pub hysteresis_tracker: i32,
    /// Overflows since the scale last changed.
    pub overflows_since_rescale: i32,
    /// Updates since the scale last changed.
    pub updates_since_rescale: i32,
    /// Skipped updates in a row, the last one included; 0 if it was clean.
    pub consecutive_skips: i32,
    /// Consecutive overflows that could not lower the scale.
    pub skips_at_floor: i32,
    /// Updates so far.
    pub updates: i64,
    /// How many of these found an overflow.
    pub skipped: i64,
    // gen-api: end
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
            // gen-api: to_raw gsc_scaler_state
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
            // gen-api: end
        }
    }

    pub(crate) fn from_raw(raw: &sys::gsc_scaler_state) -> Self {
        ScalerState {
            // gen-api: from_raw gsc_scaler_state
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
            // gen-api: end
        }
    }
}
