// SPDX-License-Identifier: Apache-2.0
// The state of a scaler for a checkpoint, as bytes. Its fields are in mirrors.rs.
use crate::mirrors::Mirror;
use crate::{Error, Result, ScalerState, Status};
use gradscaler_sys as sys;
use std::mem::size_of;
use std::ptr;

impl ScalerState {
    const SIZE: usize = size_of::<sys::gsc_scaler_state>();

    /// The library's struct of fixed layout, byte for byte, as every language writes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let raw = self.to_raw();
        // It has no padding.
        unsafe { std::slice::from_raw_parts((&raw as *const sys::gsc_scaler_state).cast(), Self::SIZE) }.to_vec()
    }

    /// Reads what [`ScalerState::to_bytes`] wrote on a machine of the same byte order, also that of an older version,
    /// which may be shorter. The values are checked by [`GradScaler::set_state`](crate::GradScaler::set_state). Errors:
    /// `InvalidArgument` for other data, and for a longer state of a newer version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let refuse = |what: &str| Err(Error::new(Status::InvalidArgument, format!("bytes: {what}")));
        if bytes.len() > Self::SIZE {
            return refuse(&format!("a scaler's state has {}, these are {}", Self::SIZE, bytes.len()));
        }
        let mut raw = empty!(gsc_scaler_state);
        // Any bits are numbers. What is not among them stays 0.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), (&mut raw as *mut sys::gsc_scaler_state).cast(), bytes.len())
        };
        if raw.struct_size as usize != bytes.len() || raw.format != sys::GSC_SCALER_STATE_FORMAT {
            return refuse("not the state of a scaler");
        }
        Ok(Self::read(&raw))
    }

    pub(crate) fn to_raw(self) -> sys::gsc_scaler_state {
        let mut raw = empty!(gsc_scaler_state);
        raw.format = sys::GSC_SCALER_STATE_FORMAT;
        self.write(&mut raw);
        raw
    }
}
