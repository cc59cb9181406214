// SPDX-License-Identifier: Apache-2.0
// Opens the library at run time by the rules of <gradscaler/loader.h>. A library that was opened stays: everything in
// the table is valid until the process ends, so that nothing can outlive it.
use super::{complete, gsc_api, GSC_ABI_VERSION};
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

/// The file name that the system's search is asked for: that of this crate's ABI number.
pub const LIBRARY_NAME: &str = if cfg!(windows) {
    "gradscaler.dll"
} else if cfg!(target_vendor = "apple") {
    "libgradscaler.1.dylib"
} else {
    "libgradscaler.so.1"
};

type GetApi = unsafe extern "C" fn(abi_version: u32) -> *const gsc_api;

/// Why there is no library: one sentence with every path that was tried, and the system's reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    message: String,
}

impl LoadError {
    pub(crate) fn new(message: String) -> Self {
        LoadError { message }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for LoadError {}

/// Loads the library, for good, and returns its table. With `None`: the file named by the environment variable
/// `GRADSCALER_LIBRARY` if that is set (and the program runs with its user's rights), then [`LIBRARY_NAME`] by the
/// system's search. Else exactly `path`. A library is loaded once however often this is called.
pub fn load(path: Option<&Path>) -> Result<&'static gsc_api, LoadError> {
    let mut paths = Vec::new();
    match path {
        Some(path) => paths.push(path.as_os_str().to_owned()),
        None => {
            paths.extend(from_environment());
            paths.push(LIBRARY_NAME.into());
        }
    }
    let mut message = "cannot load gradscaler".to_owned();
    for candidate in paths {
        match open(&candidate) {
            Ok(api) => return Ok(api),
            Err(reason) => message += &format!("; tried {candidate:?}: {reason}"),
        }
    }
    if path.is_none() {
        message += "; the environment variable GRADSCALER_LIBRARY can name the file";
    }
    Err(LoadError::new(message))
}

fn from_environment() -> Option<OsString> {
    env::var_os("GRADSCALER_LIBRARY").filter(|value| !value.is_empty() && system::is_trusted())
}

fn open(path: &OsString) -> Result<&'static gsc_api, String> {
    let symbol = system::open(path, "gsc_library_get_api\0")?;
    // The one symbol that a library of this name exports with this type in every version.
    let get_api: GetApi = unsafe { core::mem::transmute(symbol.as_ptr()) };
    from_table(unsafe { get_api(GSC_ABI_VERSION) })
}

pub(crate) fn from_table(api: *const gsc_api) -> Result<&'static gsc_api, String> {
    match unsafe { api.as_ref() } {
        Some(api) => complete(api),
        None => Err(format!("it does not provide ABI {}", GSC_ABI_VERSION)),
    }
}

#[cfg(unix)]
mod system {
    use core::ffi::c_void;
    use core::ptr::NonNull;
    use std::ffi::{CStr, CString, OsStr};
    use std::os::raw::{c_char, c_int, c_uint};
    use std::os::unix::ffi::OsStrExt;

    // In libdl before glibc 2.34.
    #[cfg_attr(all(target_os = "linux", target_env = "gnu"), link(name = "dl"))]
    extern "C" {
        fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
        fn dlclose(handle: *mut c_void) -> c_int;
        fn dlerror() -> *const c_char;
        fn getuid() -> c_uint;
        fn geteuid() -> c_uint;
        fn getgid() -> c_uint;
        fn getegid() -> c_uint;
    }
    const RTLD_NOW: c_int = 2;

    pub(super) fn is_trusted() -> bool {
        unsafe { getuid() == geteuid() && getgid() == getegid() }
    }

    fn reason() -> String {
        let text = unsafe { dlerror() };
        if text.is_null() {
            return "unknown reason".to_owned();
        }
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// `symbol` ends with a zero.
    pub(super) fn open(path: &OsStr, symbol: &str) -> Result<NonNull<c_void>, String> {
        let path = CString::new(path.as_bytes()).map_err(|_| "it has a zero byte".to_owned())?;
        // RTLD_LOCAL is 0, or the default.
        let handle = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
        if handle.is_null() {
            return Err(reason());
        }
        NonNull::new(unsafe { dlsym(handle, symbol.as_ptr().cast()) }).ok_or_else(|| {
            unsafe { dlclose(handle) };
            "not gradscaler: it has no gsc_library_get_api".to_owned()
        })
    }
}

#[cfg(windows)]
mod system {
    use core::ffi::c_void;
    use core::ptr::NonNull;
    use std::ffi::OsStr;
    use std::os::raw::{c_char, c_int};
    use std::os::windows::ffi::OsStrExt;

    #[link(name = "kernel32")]
    extern "system" {
        fn LoadLibraryW(path: *const u16) -> *mut c_void;
        fn GetProcAddress(handle: *mut c_void, name: *const c_char) -> *mut c_void;
        fn FreeLibrary(handle: *mut c_void) -> c_int;
    }

    pub(super) fn is_trusted() -> bool {
        true
    }

    /// `symbol` ends with a zero.
    pub(super) fn open(path: &OsStr, symbol: &str) -> Result<NonNull<c_void>, String> {
        let path: Vec<u16> = path.encode_wide().chain([0]).collect();
        let handle = unsafe { LoadLibraryW(path.as_ptr()) };
        if handle.is_null() {
            return Err(std::io::Error::last_os_error().to_string());
        }
        NonNull::new(unsafe { GetProcAddress(handle, symbol.as_ptr().cast()) }).ok_or_else(|| {
            unsafe { FreeLibrary(handle) };
            "not gradscaler: it has no gsc_library_get_api".to_owned()
        })
    }
}
