// SPDX-License-Identifier: Apache-2.0
//! Steps in a program that uses Vulkan by `ash`: recorded once into its command buffer, which it submits for each
//! batch. Fails unless weights and reports are those of the same steps on the CPU, bit by bit.
//!
//! Run with `GRADSCALER_LIBRARY=<libgradscaler.so.1> cargo run --release --features ash --bin vulkan` in this folder.
use ash::vk::{self, Handle};
use gradscaler::{
    Context, ContextOptions, DType, DeviceType, GradScaler, Lists, Optimizer, OptimizerOptions, Report, ScalerOptions,
    Tensor, TensorList, VulkanDevice,
};
use half::f16;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{ptr, slice, thread};

const COUNT: usize = 10_000;

/// AdamW over fp32 weights and fp16 gradients, with an fp16 copy of the weights.
fn training<'a>(
    context: &Context,
    [params, grads, copy]: [Tensor<'a>; 3],
) -> gradscaler::Result<(Optimizer<'a>, GradScaler)> {
    let list = |tensor| TensorList::new(context, [tensor]);
    let lists = Lists { params: list(params)?, grads: list(grads)?, model_copy: Some(list(copy)?), state: vec![] };
    let optimizer = Optimizer::new(OptimizerOptions::adamw().lr(1e-2), lists)?;
    Ok((optimizer, GradScaler::new(context, ScalerOptions::default())?))
}

unsafe fn run() -> Result<(), Box<dyn std::error::Error>> {
    // What a program has anyway: a device, here with all features that it supports, and a queue.
    let entry = ash::Entry::load()?;
    let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
    let info = vk::InstanceCreateInfo::default().application_info(&application);
    let instance = entry.create_instance(&info, None)?;
    let physical = instance.enumerate_physical_devices()?[0];
    let families = instance.get_physical_device_queue_family_properties(physical);
    let family = families.iter().position(|f| f.queue_flags.contains(vk::QueueFlags::COMPUTE)).unwrap() as u32;
    let mut v11 = vk::PhysicalDeviceVulkan11Features::default();
    let mut v12 = vk::PhysicalDeviceVulkan12Features::default();
    let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut v11).push_next(&mut v12);
    instance.get_physical_device_features2(physical, &mut features);
    let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
    let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).push_next(&mut features);
    let device = instance.create_device(physical, &info, None)?;
    let queue = device.get_device_queue(family, 0);
    let mutex = Arc::new(Mutex::new(())); // of the queue
    let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
    let pool = device.create_command_pool(&info, None)?;
    let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
    let commands = device.allocate_command_buffers(&info)?;

    // Mapped memory with an address: weights, gradients, copy, report.
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
    let info = vk::BufferCreateInfo::default().size(8 * COUNT as u64 + 1024).usage(usage);
    let buffer = device.create_buffer(&info, None)?;
    let needs = device.get_buffer_memory_requirements(buffer);
    let types = instance.get_physical_device_memory_properties(physical).memory_types;
    let host = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
    let fits = |&i: &u32| needs.memory_type_bits >> i & 1 == 1 && types[i as usize].property_flags.contains(host);
    let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
    let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).push_next(&mut flags);
    let memory = device.allocate_memory(&info.memory_type_index((0..32).find(fits).unwrap()), None)?;
    device.bind_buffer_memory(buffer, memory, 0)?;
    let mapped = device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())?;
    let weights = slice::from_raw_parts_mut(mapped.cast::<f32>(), COUNT);
    let gradients = slice::from_raw_parts_mut(mapped.cast::<f16>().add(2 * COUNT), COUNT);
    let copy = slice::from_raw_parts(mapped.cast::<u16>().add(3 * COUNT), COUNT);
    let report = mapped.cast::<u8>().add(8 * COUNT);
    let address = device.get_buffer_device_address(&vk::BufferDeviceAddressInfo::default().buffer(buffer));
    let at = |byte: usize| (address as usize + byte) as *mut c_void;

    // The same training on the device, whose objects end before it does, and on the CPU.
    {
        let handles = VulkanDevice {
            instance: instance.handle().as_raw(),
            physical_device: physical.as_raw(),
            device: device.handle().as_raw(),
            queue: queue.as_raw(),
            queue_family: family,
            get_instance_proc_addr: entry.static_fn().get_instance_proc_addr as *const c_void,
            enabled_features: ptr::addr_of!(features).cast(),
        };
        let options = ContextOptions::default().vulkan_device(handles).queue_mutex(mutex.clone());
        let context = Context::new(options)?;
        let tensors = [(0, DType::Fp32), (4 * COUNT, DType::Fp16), (6 * COUNT, DType::Fp16)];
        let tensors = tensors.map(|(byte, dtype)| Tensor::from_raw_parts(at(byte), COUNT, dtype));
        let (mut optimizer, mut scaler) = training(&context, tensors)?;
        let first = (0..COUNT).map(|i| (i as f32).sin()).collect::<Vec<_>>();
        weights.copy_from_slice(&first);
        let tensors = [first.into(), vec![f16::ZERO; COUNT].into(), vec![f16::ZERO; COUNT].into()];
        let (mut on_cpu, mut scaler_on_cpu) = training(&Context::cpu()?, tensors)?;

        device.begin_command_buffer(commands[0], &vk::CommandBufferBeginInfo::default())?;
        context.set_stream(commands[0].as_raw() as *mut c_void);
        scaler.step_and_update(&mut optimizer)?;
        scaler.read_report_async(None, at(8 * COUNT).cast())?;
        context.set_stream(ptr::null_mut()); // the library submits again
        let (from, to) = (vk::PipelineStageFlags::COMPUTE_SHADER, vk::PipelineStageFlags::HOST);
        let (write, read) = (vk::AccessFlags::SHADER_WRITE, vk::AccessFlags::HOST_READ);
        let barrier = vk::MemoryBarrier::default().src_access_mask(write).dst_access_mask(read);
        device.cmd_pipeline_barrier(commands[0], from, to, vk::DependencyFlags::empty(), &[barrier], &[], &[]);
        device.end_command_buffer(commands[0])?;

        for batch in 0..6 {
            for (i, gradient) in gradients.iter_mut().enumerate() {
                *gradient = f16::from_f32(((i + 7 * batch) as f32).cos() * 100.0);
            }
            if batch == 3 {
                gradients[COUNT / 2] = f16::INFINITY;
            }
            {
                let _locked = mutex.lock().unwrap();
                let info = vk::SubmitInfo::default().command_buffers(&commands);
                device.queue_submit(queue, &[info], vk::Fence::null())?;
                device.queue_wait_idle(queue)?;
            }
            on_cpu.grads_mut().get_mut::<f16>(0)?.copy_from_slice(gradients);
            scaler_on_cpu.step_and_update(&mut on_cpu)?;
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
            assert!(weights.iter().zip(on_cpu.params().get(0)?).all(same), "batch {batch}");
            assert_eq!(copy, on_cpu.model_copy().unwrap().bits(0)?, "batch {batch}");
            assert_eq!(Report::from(&*report.cast()), scaler_on_cpu.report()?, "batch {batch}");
        }
        // A call that waits submits to the queue: not while another thread has its mutex.
        let locked = mutex.lock().unwrap();
        let scale = thread::spawn(move || scaler.scale());
        thread::sleep(Duration::from_millis(50));
        assert!(!scale.is_finished());
        drop(locked);
        assert_eq!(scale.join().unwrap()?, 32768.0);
        let steps = optimizer.steps()?;
        assert_eq!((steps.applied, steps.skipped), (5, 1));
        println!("{steps:?}: all bits as on the CPU");
    }

    device.destroy_command_pool(pool, None);
    device.destroy_buffer(buffer, None);
    device.free_memory(memory, None);
    device.destroy_device(None);
    instance.destroy_instance(None);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if gradscaler::device_count(DeviceType::Vulkan)? == 0 {
        println!("left out: there is no Vulkan device, or the library has no Vulkan backend");
        return Ok(());
    }
    unsafe { run() }
}
