// SPDX-License-Identifier: Apache-2.0
// The library that this process uses, one for all objects: its version, its build and its devices.
use crate::error::{check, text};
use crate::{CpuTarget, DType, DeviceType, Error, Result, Status};
use gradscaler_sys as sys;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

static API: AtomicPtr<sys::gsc_api> = AtomicPtr::new(ptr::null_mut());

/// The table, found at the first call.
pub(crate) fn api() -> Result<&'static sys::gsc_api> {
    match unsafe { API.load(Ordering::Acquire).as_ref() } {
        Some(api) => Ok(api),
        None => choose(None),
    }
}

#[cfg(feature = "link")]
fn find(_path: Option<&Path>) -> std::result::Result<&'static sys::gsc_api, sys::LoadError> {
    sys::linked()
}

#[cfg(not(feature = "link"))]
fn find(path: Option<&Path>) -> std::result::Result<&'static sys::gsc_api, sys::LoadError> {
    sys::load(path)
}

fn choose(path: Option<&Path>) -> Result<&'static sys::gsc_api> {
    let found = find(path).map_err(|error| Error::new(Status::Unavailable, error.to_string()))?;
    let address = found as *const sys::gsc_api as *mut sys::gsc_api;
    match API.compare_exchange(ptr::null_mut(), address, Ordering::AcqRel, Ordering::Acquire) {
        Err(current) if current != address && path.is_some() => Err(Error::new(
            Status::BadState,
            "load: another gradscaler is in use in this process; call load before anything else",
        )),
        Err(current) => Ok(unsafe { &*current }),
        Ok(_) => Ok(found),
    }
}

/// Loads the library from exactly this file. Without it, the first use loads the file that the environment variable
/// `GRADSCALER_LIBRARY` names, or what the system's search finds by the library's name.
///
/// A process uses one library, and never unloads it. Errors: `Unavailable` with the path and the reason; `BadState` if
/// another is in use.
#[cfg(not(feature = "link"))]
pub fn load(path: impl AsRef<Path>) -> Result<()> {
    choose(Some(path.as_ref())).map(|_| ())
}

/// The library's version as "major.minor.patch".
pub fn version() -> Result<String> {
    Ok(text(unsafe { (api()?.library_get_version)() }))
}

/// One line for bug reports: version, ABI, compiler, instruction sets, CUDA architectures.
pub fn build_info() -> Result<String> {
    Ok(text(unsafe { (api()?.library_get_build_info)() }))
}

/// Number of devices of a kind. The CPU counts 1. For CUDA and Vulkan without a driver, or built without them: 0.
pub fn device_count(device_type: DeviceType) -> Result<usize> {
    let api = api()?;
    let mut count = 0;
    check(api, unsafe { (api.device_get_count)(device_type as i32, &mut count) })?;
    Ok(count as usize)
}

/// Description of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The kind.
    pub device_type: DeviceType,
    /// Its number among those of its kind.
    pub index: usize,
    /// CPU: threads this process may run on. CUDA: number of multiprocessors.
    pub units: usize,
    /// CPU: the best instruction set that can be used.
    pub cpu_target: Option<CpuTarget>,
    /// CUDA: major and minor compute capability.
    pub compute_capability: Option<(u32, u32)>,
    /// Memory of the device in bytes, if known.
    pub memory_bytes: Option<u64>,
    /// Its name.
    pub name: String,
}

/// Describes a device. Errors: `Unavailable` if there is no such device.
pub fn device_info(device_type: DeviceType, index: usize) -> Result<DeviceInfo> {
    let api = api()?;
    let mut info = empty!(gsc_device_info);
    check(api, unsafe { (api.device_get_info)(device_type as i32, number(index), &mut info) })?;
    let is_cpu = device_type == DeviceType::Cpu;
    Ok(DeviceInfo {
        device_type,
        index,
        units: info.units as usize,
        cpu_target: CpuTarget::try_from(info.level).ok().filter(|_| is_cpu),
        compute_capability: Some((info.level as u32 / 10, info.level as u32 % 10))
            .filter(|_| device_type == DeviceType::Cuda),
        memory_bytes: Some(info.memory_bytes as u64).filter(|&bytes| bytes > 0),
        name: text(info.name.as_ptr()),
    })
}

/// An index for the library: what does not fit it refuses as it does any other that is out of range.
pub(crate) fn number(index: usize) -> i32 {
    i32::try_from(index).unwrap_or(-1)
}

/// What [`recommend_scale`] found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recommendation {
    /// A power of two; the current scale if the histogram is empty.
    pub scale: f32,
    /// Share (0 to 1) of the counted values that would still be flushed to zero.
    pub flushed: f64,
}

/// Recommends a loss scale from an exponent histogram of gradients taken at `current_scale`: the largest power of two
/// that keeps the largest magnitude two binades below the overflow limit of `dtype`, in which the gradients are
/// computed. `histogram`: that of a [`Diagnosis`](crate::Diagnosis).
pub fn recommend_scale(histogram: &[i64], current_scale: f32, dtype: DType) -> Result<Recommendation> {
    let api = api()?;
    let mut found = Recommendation { scale: 0.0, flushed: 0.0 };
    check(api, unsafe {
        (api.histogram_recommend_scale)(
            histogram.as_ptr(),
            histogram.len() as i64,
            current_scale,
            dtype as i32,
            &mut found.scale,
            &mut found.flushed,
        )
    })?;
    Ok(found)
}
