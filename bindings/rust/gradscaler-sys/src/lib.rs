// SPDX-License-Identifier: Apache-2.0
#![doc = include_str!("../README.md")]
#![allow(non_camel_case_types)]

use core::ffi::c_void;
use core::mem::size_of;
use std::os::raw::c_char;

/// Result of every function that can fail: one of the `GSC_OK` and `GSC_ERROR_*`.
pub type gsc_status = i32;
/// cudaStream_t or CUstream as a plain pointer; NULL is the default stream. Ignored on the CPU.
pub type gsc_stream = *mut c_void;

/// A type whose contents are the library's.
macro_rules! handle {
    ($name:ident) => {
        #[doc = concat!("A handle of the library's: see `", stringify!($name), "_create`.")]
        #[repr(C)]
        pub struct $name {
            _opaque: [u8; 0],
            _not_send_sync: core::marker::PhantomData<*mut u8>,
        }
    };
}

macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident { $($(#[$text:meta])* $field:ident: $kind:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug)]
            pub struct $name {
                $($(#[$text])* pub $field: $kind,)*
            }
        )*
    };
}

/// From a name in the table, a name in C and a signature: the table, and the functions of the library that is linked.
macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident $name:ident($($parameter:ident: $kind:ty),*) -> $result:ty;)*) => {
        /// The function table: a pointer for every function of the header, without the `gsc_`. Fields are only ever
        /// appended: a library whose `struct_size` is smaller lacks the last ones.
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct gsc_api {
            pub struct_size: u32,
            pub abi_version: u32,
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($parameter: $kind),*) -> $result,)*
        }

        #[cfg(feature = "link")]
        extern "C" {
            $($(#[$doc])* pub fn $name($($parameter: $kind),*) -> $result;)*
            /// The function table for an ABI number, or NULL if this library does not provide it.
            pub fn gsc_library_get_api(abi_version: u32) -> *const gsc_api;
        }
    };
}

include!("bindings.rs");

/// Declarations of <gradscaler/vulkan.h>, any of which may change or go in any release. Their functions are in no table.
pub mod experimental {
    use super::*;

    /// From a name, a name in C and a signature: what a library may have of the functions.
    macro_rules! experiments {
        ($($(#[$doc:meta])* $field:ident $name:ident($($parameter:ident: $kind:ty),*) -> $result:ty;)*) => {
            /// The experimental functions of a library; `None` for one that it lacks.
            #[derive(Clone, Copy, Debug)]
            pub struct Functions {
                $($(#[$doc])* pub $field: Option<unsafe extern "C" fn($($parameter: $kind),*) -> $result>,)*
            }

            impl Functions {
                /// Those of the library that a table is from.
                pub fn of(api: &'static gsc_api) -> Self {
                    #[cfg(feature = "link")]
                    if load::is_linked(api) {
                        return Functions { $($field: Some(linked::$name),)* };
                    }
                    // The types are those of the header that this crate belongs to.
                    Functions {
                        $($field: load::find(api, concat!(stringify!($name), "\0"))
                            .map(|symbol| unsafe { core::mem::transmute(symbol.as_ptr()) }),)*
                    }
                }
            }

            #[cfg(feature = "link")]
            mod linked {
                use super::*;
                extern "C" {
                    $(pub fn $name($($parameter: $kind),*) -> $result;)*
                }
            }
        };
    }

    include!("experimental.rs");
}

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

mod load;
#[cfg(test)]
mod tests;

pub use load::{load, LoadError, LIBRARY_NAME};

/// The table of the library that the program is linked to. An error if that library is older than this crate.
#[cfg(feature = "link")]
pub fn linked() -> Result<&'static gsc_api, LoadError> {
    load::from_table(unsafe { gsc_library_get_api(GSC_ABI_VERSION) })
        .map_err(|reason| LoadError::new(format!("cannot use the gradscaler that is linked: {reason}")))
}
