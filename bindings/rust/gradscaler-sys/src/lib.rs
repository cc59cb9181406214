// SPDX-License-Identifier: Apache-2.0
//! The C interface of gradscaler, as it is: handles, structs, constants, and the function table [`gsc_api`]. The
//! contracts are in `gradscaler.h`. The crate `gradscaler` is the safe one.
//!
//! The table comes from a library that is loaded at run time, which needs nothing at build time:
//!
//! ```
//! # fn main() -> Result<(), gradscaler_sys::LoadError> {
//! let api = gradscaler_sys::load(None)?; // GRADSCALER_LIBRARY, or the system's search
//! let version = unsafe { std::ffi::CStr::from_ptr((api.library_get_version)()) };
//! assert_eq!(version.to_str(), Ok("0.1.0"));
//! # Ok(())
//! # }
//! ```
//!
//! With the feature `link` it comes from a library that the program is linked to, `linked`, and the functions are there
//! by their names as well. `GRADSCALER_LIB_DIR` names the folder that the linker looks in; without it `pkg-config` is
//! asked.
#![warn(missing_docs)]
#![allow(non_camel_case_types)]

use core::mem::size_of;

/// Whether a table has all the fields that this crate knows.
fn complete(api: &'static gsc_api) -> Result<&'static gsc_api, String> {
    if api.struct_size as usize >= size_of::<gsc_api>() {
        return Ok(api);
    }
    Err(format!(
        "it is older than this crate: its function table has {} bytes, of {}",
        api.struct_size,
        size_of::<gsc_api>()
    ))
}

#[cfg(test)]
macro_rules! fields {
    ($all:ident, $structure:ident, $($field:ident),*) => {
        let whole = core::mem::MaybeUninit::<$structure>::uninit();
        $($all.push((
            stringify!($structure),
            stringify!($field),
            unsafe { core::ptr::addr_of!((*whole.as_ptr()).$field) as usize } - whole.as_ptr() as usize,
            core::mem::size_of::<$structure>(),
        ));)*
    };
}

#[allow(missing_docs)] // they are in gradscaler.h
#[rustfmt::skip]
mod bindings;
mod load;
#[cfg(test)]
mod tests;

pub use bindings::*;
pub use load::{load, LoadError, LIBRARY_NAME};

/// The table of the library that the program is linked to. An error if that library is older than this crate.
#[cfg(feature = "link")]
pub fn linked() -> Result<&'static gsc_api, LoadError> {
    load::from_table(unsafe { gsc_library_get_api(GSC_ABI_VERSION) }).map_err(|reason| {
        LoadError::new(format!(
            "cannot use the gradscaler that is linked: {}",
            reason
        ))
    })
}
