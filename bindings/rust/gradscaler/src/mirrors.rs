// SPDX-License-Identifier: Apache-2.0
// The enumerations and structs of gradscaler.h as types of Rust. Their rows, and the getters of numbers, are in declared.rs,
// which scripts/gen-api writes.
use crate::{Optimizer, Result};
use gradscaler_sys as sys;
use std::convert::identity;

/// The type of a field, and that of the field of the C struct.
pub(crate) trait Field: Sized {
    type Raw;
    fn read(raw: Self::Raw) -> Self;
    fn write(self, raw: &mut Self::Raw);
}

macro_rules! fields {
    ($($type:ty as $raw:ty: $read:expr, $write:expr;)*) => {$(
        impl Field for $type {
            type Raw = $raw;

            fn read(raw: $raw) -> $type {
                $read(raw)
            }

            fn write(self, raw: &mut $raw) {
                *raw = $write(self);
            }
        }
    )*};
}
macro_rules! numbers {
    ($($type:ty),*) => { fields! { $($type as $type: identity, identity;)* } };
}
numbers!(f32, f64, i32, i64, *const f32, *const f64, *const i32);
fields! {
    bool as i32: |raw| raw != 0, i32::from;
    u64 as i64: |raw| raw as u64, |count| count as i64; // a count
    Option<usize> as i64: |raw| usize::try_from(raw).ok(), |index: Self| index.map_or(-1, |index| index as i64); // or -1
}

/// An option: None leaves the default that is there.
impl<T: Field> Field for Option<T> {
    type Raw = T::Raw;

    fn read(raw: T::Raw) -> Option<T> {
        Some(T::read(raw))
    }

    fn write(self, raw: &mut T::Raw) {
        if let Some(value) = self {
            value.write(raw);
        }
    }
}

macro_rules! enumerations {
    ($($(#[$doc:meta])* $name:ident { $($(#[$text:meta])* $variant:ident = $($constant:ident)::+,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(i32)]
        pub enum $name {
            $($(#[$text])* $variant = sys::$($constant)::+,)*
        }

        impl TryFrom<i32> for $name {
            /// The code that is none of these.
            type Error = i32;

            fn try_from(code: i32) -> std::result::Result<Self, i32> {
                match code {
                    $(sys::$($constant)::+ => Ok(Self::$variant),)*
                    _ => Err(code),
                }
            }
        }

        impl Field for $name {
            type Raw = i32;

            /// The first, which is the default, for a code that a later library has.
            fn read(raw: i32) -> Self {
                raw.try_into().unwrap_or([$(Self::$variant),*][0])
            }

            fn write(self, raw: &mut i32) {
                *raw = self as i32;
            }
        }
    )*};
}

/// A struct and the C struct that it stands for.
pub(crate) trait Mirror {
    type Raw;
    fn read(raw: &Self::Raw) -> Self;
    fn write(self, raw: &mut Self::Raw);
}

/// A C struct of numbers and addresses for the library to fill in.
macro_rules! empty {
    ($($raw:ident)::+) => {{
        let mut raw: sys::$($raw)::+ = unsafe { std::mem::zeroed() };
        raw.struct_size = std::mem::size_of::<sys::$($raw)::+>() as u32;
        raw
    }};
}

/// Calls a function of the library on an object, which judges the status.
macro_rules! call {
    ($object:ident.$function:ident($($argument:expr),*)) => {
        $object.judge(unsafe { ($object.context().api().$function)($object.as_ptr(), $($argument),*) })
    };
}

/// A struct with the fields of a C struct; a bit of its `flags` is a `bool`. It may have more fields.
macro_rules! mirror {
    ($(#[$meta:meta])* $name:ident of $raw:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty,)*
    } flags {
        $($(#[$text:meta])* $flag:ident = $bit:ident,)*
    } more {
        $($(#[$note:meta])* $more:ident: $more_type:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
            $($(#[$text])* pub $flag: bool,)*
            $($(#[$note])* pub $more: $more_type,)*
        }

        impl Mirror for $name {
            type Raw = sys::$raw;

            fn read(raw: &sys::$raw) -> Self {
                $name {
                    $($field: Field::read(raw.$field),)*
                    $($flag: raw.flags & sys::$bit != 0,)*
                    $($more: Default::default(),)*
                }
            }

            fn write(self, raw: &mut sys::$raw) {
                $(self.$field.write(&mut raw.$field);)*
                $(raw.flags = raw.flags & !sys::$bit | if self.$flag { sys::$bit } else { 0 };)*
            }
        }

        impl From<&sys::$raw> for $name {
            fn from(raw: &sys::$raw) -> Self {
                Mirror::read(raw)
            }
        }
    };
}

/// The same with defaults, and a method for each field that sets it.
macro_rules! options {
    ($(#[$meta:meta])* $name:ident of $raw:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty $(as $set:ty)? = $default:expr,)*
    } flags {
        $($(#[$text:meta])* $flag:ident = $bit:ident,)*
    }) => {
        mirror! {
            $(#[$meta])*
            #[derive(Copy)]
            $name of $raw {
                $($(#[$doc])* $field: $type,)*
            } flags {
                $($(#[$text])* $flag = $bit,)*
            } more {}
        }

        impl Default for $name {
            fn default() -> Self {
                Self::DEFAULT
            }
        }

        impl $name {
            pub(crate) const DEFAULT: Self = $name { $($field: $default,)* $($flag: false,)* };

            $($(
                #[doc = concat!("Sets the field `", stringify!($field), "`.")]
                #[allow(clippy::useless_conversion)]
                pub fn $field(mut self, $field: $set) -> Self {
                    self.$field = $field.into();
                    self
                }
            )?)*
            $(
                #[doc = concat!("Sets the field `", stringify!($flag), "`.")]
                pub fn $flag(mut self, $flag: bool) -> Self {
                    self.$flag = $flag;
                    self
                }
            )*
        }
    };
}

include!("declared.rs");
