// SPDX-License-Identifier: Apache-2.0
// The library itself, the stateless operations, and whether the crate calls every function.
use super::*;

#[test]
fn the_stateless_operations() -> Result<()> {
    let context = Context::cpu()?;
    let mut bits = vec![0u16; 3];
    ops::cast(&context, &[1f32, -2.0, 65504.0], Tensor::fp16(&mut bits))?;
    assert_eq!(bits, [0x3c00, 0xc000, 0x7bff]);
    let mut halves = [0f32; 3];
    ops::scale(&context, TensorRef::fp16(&bits), &mut halves, 0.5)?;
    assert_eq!(halves, [0.5, -1.0, 32752.0]);
    ops::axpby(&context, 2.0, &[1f32, 1.0, 1.0], 0.0, &mut halves)?;
    assert_eq!(halves, [2.0; 3]);
    let tensors = [TensorRef::from(&[3f32]), TensorRef::from(&[4f64])];
    assert_eq!(ops::norm(&context, &tensors, Norm::L2)?, 5.0);
    assert_eq!(ops::tensor_norms(&context, &tensors, Norm::Inf)?, (4.0, vec![3.0, 4.0]));
    let mut gradients = [8f32, f32::INFINITY];
    assert!(ops::unscale_check(&context, &mut [Tensor::from(&mut gradients)], 0.5)?);
    assert_eq!(gradients, [4.0, f32::INFINITY]);
    let (mut scale, mut tracker) = (8f32, 1);
    ops::update_scale(&context, &mut scale, &mut tracker, false, 2.0, 0.5, 2)?;
    assert_eq!((scale, tracker), (16.0, 0));
    ops::update_scale(&context, &mut scale, &mut tracker, true, 2.0, 0.5, 2)?;
    assert_eq!((scale, tracker), (8.0, 0));
    let mut scaled = [0f32; 2];
    scaler(&context).scale_into(&[1f32, 2.0], &mut scaled)?;
    assert_eq!(scaled, [1024.0, 2048.0]);
    Ok(())
}

#[test]
fn tensors_are_diagnosed() {
    let context = Context::cpu().unwrap();
    let list = TensorList::new(&context, [vec![1f32, -4.0, 0.0, f32::NAN, f32::INFINITY, 1e-40]]).unwrap();
    let found = &list.diagnose().unwrap()[0];
    assert_eq!((found.count, found.nan_count, found.inf_count, found.zero_count), (6, 1, 1, 1));
    assert_eq!((found.subnormal_count, found.first_nonfinite, found.amax), (1, Some(3), 4.0));
    let bin = |exponent: i32| found.histogram[(exponent - gradscaler::EXPONENT_MIN) as usize];
    assert_eq!((bin(0), bin(2), found.histogram.iter().sum::<i64>()), (1, 1, 3));
    let recommended = gradscaler::recommend_scale(&found.histogram, 1.0, DType::Fp16).unwrap();
    assert_eq!(recommended.scale.log2().fract(), 0.0);
    assert!(recommended.flushed > 0.3);
}

#[test]
fn the_library_and_its_devices_are_known() -> Result<()> {
    assert_eq!(gradscaler::version()?, env!("CARGO_PKG_VERSION"));
    assert!(gradscaler::build_info()?.contains("gradscaler"));
    let cpu = gradscaler::device_info(gradscaler::DeviceType::Cpu, 0)?;
    assert!(cpu.units > 0 && cpu.cpu_target.is_some() && !cpu.name.is_empty());
    refused(gradscaler::device_info(gradscaler::DeviceType::Cpu, 1), Unavailable, "device_index is 1");
    let context = Context::cpu()?;
    assert_eq!(context.device_index()?, 0);
    assert_eq!(context.cpu_target()?, cpu.cpu_target.unwrap());
    if gradscaler::device_count(gradscaler::DeviceType::Cuda)? == 0 {
        refused(Context::cuda(0), Unavailable, "CUDA");
    }
    Ok(())
}

/// Without a device: a library that has no Vulkan says so, one that has it reads the handles.
#[test]
fn handles_of_vulkan_reach_the_library() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "system" fn finds_nothing(instance: usize, _name: *const u8) -> usize {
        ASKED.store(instance, Ordering::Relaxed);
        0
    }
    let make = |instance| {
        let device = VulkanDevice {
            instance,
            physical_device: 2,
            device: 3,
            queue: 4,
            queue_family: 0,
            get_instance_proc_addr: finds_nothing as *const _,
            enabled_features: std::ptr::null(),
        };
        Context::new(unsafe { ContextOptions::default().vulkan_device(device) })
    };
    if gradscaler::build_info().unwrap().contains("Vulkan: no") {
        refused(make(1 << 40), Unavailable, "built without Vulkan");
    } else {
        refused(make(0), InvalidArgument, "device.instance is NULL");
        refused(make(1 << 40), Unavailable, "was not found: the Vulkan instance");
        assert_eq!(ASKED.load(Ordering::Relaxed), 1 << 40);
    }
}

/// Functions that the crate does not call: what they tell it has of its own.
const NOT_CALLED: [&str; 6] = [
    "context_set_log", // the log is a closure that `set_log` replaces
    "error_clear",
    "library_get_abi_version",
    "optimizer_get_grads",
    "status_get_name",
    "tensor_list_get_name",
];

#[test]
fn every_function_of_the_table_is_called() {
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let table = read(concat!(env!("CARGO_MANIFEST_DIR"), "/../gradscaler-sys/src/bindings.rs").into());
    let sources = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
    let code: String = sources.map(|entry| read(entry.unwrap().path())).collect();
    let functions: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("    ")?.split_once(" gsc_"))
        .map(|(name, _)| name)
        .filter(|name| !name.contains(|c: char| !c.is_alphanumeric() && c != '_'))
        .collect();
    assert!(functions.len() > 70);
    let mut missing = functions;
    missing.retain(|name| !code.contains(&format!(".{name}")));
    missing.sort_unstable();
    assert_eq!(missing, NOT_CALLED);
}

#[test]
#[cfg(not(feature = "link"))]
fn another_library_cannot_be_chosen_later() {
    Context::cpu().unwrap();
    refused(gradscaler::load("/nowhere/libgradscaler.so.1"), Unavailable, "/nowhere/libgradscaler.so.1");
    // The same file again is no other library.
    if let Some(path) = std::env::var_os("GRADSCALER_LIBRARY") {
        gradscaler::load(path).unwrap();
    }
}
