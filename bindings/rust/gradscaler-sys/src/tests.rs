// SPDX-License-Identifier: Apache-2.0
// The layout of the declarations, in tests that are made of tests/abi/layout.inc; and what is said of a library that
// cannot be loaded.
use super::*;
use std::path::Path;

macro_rules! offset {
    ($name:ident.$field:ident, $recorded:literal) => {
        let whole = core::mem::MaybeUninit::<$name>::uninit();
        let field = unsafe { core::ptr::addr_of!((*whole.as_ptr()).$field) };
        let found = field as usize - whole.as_ptr() as usize;
        assert_eq!(found, $recorded, "{}.{}", stringify!($name), stringify!($field));
    };
}

include!("layout.rs");

#[test]
fn what_cannot_be_loaded_is_named() {
    let error = load(Some(Path::new("/nowhere/libgradscaler.so.1"))).unwrap_err().to_string();
    assert!(error.starts_with("cannot load gradscaler; tried \"/nowhere/libgradscaler.so.1\": "), "{error}");
    assert!(error.contains("No such file") || cfg!(not(target_os = "linux")), "{error}");
}

/// In a process of its own, whose environment is wrong.
#[test]
#[cfg(target_os = "linux")]
fn without_a_path_the_environment_variable_is_named() {
    const WRONG: &str = "/nowhere/libgradscaler.so.1";
    if std::env::var("GRADSCALER_LIBRARY").as_deref() == Ok(WRONG) {
        if let Err(error) = load(None) {
            println!("{error}");
        }
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["without_a_path_the_environment_variable_is_named", "--nocapture"])
        .env("GRADSCALER_LIBRARY", WRONG)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    if !said.contains("cannot load gradscaler") {
        return; // It is installed on this system.
    }
    assert!(said.contains("; the environment variable GRADSCALER_LIBRARY can name the file"), "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn another_library_is_refused() {
    let error = load(Some(Path::new("libc.so.6"))).unwrap_err().to_string();
    assert!(error.ends_with("not gradscaler: it has no gsc_library_get_api"), "{error}");
}

#[test]
fn a_shorter_table_is_refused() {
    let mut short = *load(None).unwrap();
    short.struct_size -= 8;
    let short: &'static gsc_api = Box::leak(Box::new(short));
    assert!(load::from_table(short).unwrap_err().starts_with("it is older than this crate"));
    assert_eq!(load::from_table(core::ptr::null()).unwrap_err(), "it does not provide ABI 1");
}

/// Of a crate that is newer than the library, whose structs are then shorter.
#[test]
fn a_field_that_the_library_does_not_know_is_0() {
    #[repr(C)]
    struct Later<T> {
        known: T,
        later: i64,
    }
    let api = load(None).unwrap();
    let size = |bytes: usize| bytes as u32;

    let mut info: Later<gsc_device_info> = unsafe { core::mem::zeroed() };
    info.known.struct_size = size(size_of::<Later<gsc_device_info>>());
    info.later = -1;
    let status = unsafe { (api.device_get_info)(GSC_DEVICE_CPU, 0, (&mut info as *mut Later<gsc_device_info>).cast()) };
    assert_eq!((status, info.later), (GSC_OK, 0));
    assert_eq!(info.known.struct_size, size(size_of::<Later<gsc_device_info>>()));

    let mut options: Later<gsc_context_options> = unsafe { core::mem::zeroed() };
    options.known.struct_size = size(size_of::<Later<gsc_context_options>>());
    for (later, expected) in [(0, GSC_OK), (1, GSC_ERROR_UNSUPPORTED)] {
        options.later = later;
        let mut context = core::ptr::null_mut();
        let given: *const gsc_context_options = (&options as *const Later<gsc_context_options>).cast();
        assert_eq!(unsafe { (api.context_create)(given, &mut context) }, expected);
        unsafe { (api.context_destroy)(context) };
    }
}

#[test]
fn experimental_functions_are_found_by_name() {
    let api = load(None).unwrap();
    assert!(experimental::Functions::of(api).context_create_vulkan.is_some());
    assert!(load::find(api, "gscx_nothing\0").is_none());
    // A table that no library was loaded for.
    let copy: &'static gsc_api = Box::leak(Box::new(*api));
    assert!(load::find(copy, "gscx_context_create_vulkan\0").is_none());
}

#[test]
fn the_same_library_has_the_same_table() {
    assert!(core::ptr::eq(load(None).unwrap(), load(None).unwrap()));
}
