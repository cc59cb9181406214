// SPDX-License-Identifier: Apache-2.0
// Opens the library at run time by the rules of <gradscaler/loader.h>. A library that was opened stays: everything in
// the table is valid until the process ends, so that nothing can outlive it.
use super::{complete, gsc_api, GSC_ABI_VERSION};
use std::env;
use std::ffi::c_void;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// The file name that the system's search is asked for: that of this crate's ABI number.
pub const LIBRARY_NAME: &str = if cfg!(windows) {
    "gradscaler.dll"
} else if cfg!(target_vendor = "apple") {
    "libgradscaler.1.dylib"
} else {
    "libgradscaler.so.1"
};

/// Libraries that were loaded: the addresses of their tables, and their handles.
static LOADED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

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
    let (handle, symbol) = system::open(path, "gsc_library_get_api\0")?;
    // The one symbol that a library of this name exports with this type in every version.
    let get_api: GetApi = unsafe { core::mem::transmute(symbol.as_ptr()) };
    let api = from_table(unsafe { get_api(GSC_ABI_VERSION) })?;
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if !loaded.iter().any(|(table, _)| *table == address(api)) {
        loaded.push((address(api), handle.as_ptr() as usize));
    }
    Ok(api)
}

fn address(api: &'static gsc_api) -> usize {
    api as *const gsc_api as usize
}

fn handle_of(api: &'static gsc_api) -> Option<usize> {
    let loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    loaded.iter().find(|(table, _)| *table == address(api)).map(|(_, handle)| *handle)
}

/// A function that is not in the table, of the library that `load` has it from. `name` ends with a zero.
pub(crate) fn find(api: &'static gsc_api, name: &str) -> Option<NonNull<c_void>> {
    system::find(handle_of(api)? as *mut c_void, name)
}

/// Whether a table is not from a library that was loaded.
#[cfg(feature = "link")]
pub(crate) fn is_linked(api: &'static gsc_api) -> bool {
    handle_of(api).is_none()
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

    /// The handle of the library and a symbol of it. `symbol` ends with a zero.
    pub(super) fn open(path: &OsStr, symbol: &str) -> Result<(NonNull<c_void>, NonNull<c_void>), String> {
        let path = CString::new(path.as_bytes()).map_err(|_| "it has a zero byte".to_owned())?;
        // RTLD_LOCAL is 0, or the default.
        let handle = NonNull::new(unsafe { dlopen(path.as_ptr(), RTLD_NOW) }).ok_or_else(reason)?;
        match find(handle.as_ptr(), symbol) {
            Some(found) => Ok((handle, found)),
            None => {
                unsafe { dlclose(handle.as_ptr()) };
                Err("not gradscaler: it has no gsc_library_get_api".to_owned())
            }
        }
    }

    pub(super) fn find(handle: *mut c_void, symbol: &str) -> Option<NonNull<c_void>> {
        NonNull::new(unsafe { dlsym(handle, symbol.as_ptr().cast()) })
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

    /// The handle of the library and a symbol of it. `symbol` ends with a zero.
    pub(super) fn open(path: &OsStr, symbol: &str) -> Result<(NonNull<c_void>, NonNull<c_void>), String> {
        let path: Vec<u16> = path.encode_wide().chain([0]).collect();
        let handle = NonNull::new(unsafe { LoadLibraryW(path.as_ptr()) })
            .ok_or_else(|| std::io::Error::last_os_error().to_string())?;
        match find(handle.as_ptr(), symbol) {
            Some(found) => Ok((handle, found)),
            None => {
                unsafe { FreeLibrary(handle.as_ptr()) };
                Err("not gradscaler: it has no gsc_library_get_api".to_owned())
            }
        }
    }

    pub(super) fn find(handle: *mut c_void, symbol: &str) -> Option<NonNull<c_void>> {
        NonNull::new(unsafe { GetProcAddress(handle, symbol.as_ptr().cast()) })
    }
}
