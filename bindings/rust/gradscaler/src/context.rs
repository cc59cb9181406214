// SPDX-License-Identifier: Apache-2.0
// Contexts: a device with its threads and log. Every other object holds a clone.
use crate::callbacks::{self, Hooks, Log, Queue};
use crate::error::check;
use crate::library::{api, number};
use crate::{CpuTarget, DeviceType, Error, Result, Status};
use gradscaler_sys as sys;
use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

/// How a context is made. The default is the CPU with all its threads.
///
/// ```
/// use gradscaler::{Context, ContextOptions};
///
/// let context = Context::new(ContextOptions::default().num_threads(2))?;
/// assert_eq!(context.num_threads()?, 2);
/// # Ok::<(), gradscaler::Error>(())
/// ```
pub struct ContextOptions {
    device_type: DeviceType,
    device_index: usize,
    num_threads: usize,
    cpu_target: CpuTarget,
    flags: u32,
    given: Option<Vulkan>,
    hooks: Hooks,
}

/// A device, and what finds the function that opens it. `Context::new` does not name that function: a program that links
/// the library and never hands over a device does not need a library that has it.
struct Vulkan {
    device: VulkanDevice,
    functions: fn(&'static sys::gsc_api) -> sys::experimental::Functions,
}

impl Default for ContextOptions {
    fn default() -> Self {
        ContextOptions {
            device_type: DeviceType::Cpu,
            device_index: 0,
            num_threads: 0,
            cpu_target: CpuTarget::Best,
            flags: 0,
            given: None,
            hooks: Hooks::default(),
        }
    }
}

impl fmt::Debug for ContextOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextOptions")
            .field("device_type", &self.device_type)
            .field("device_index", &self.device_index)
            .field("num_threads", &self.num_threads)
            .field("cpu_target", &self.cpu_target)
            .finish_non_exhaustive()
    }
}

impl ContextOptions {
    /// CUDA device `index` in place of the CPU.
    pub fn cuda(mut self, index: usize) -> Self {
        self.device_type = DeviceType::Cuda;
        self.device_index = index;
        self
    }

    /// CUDA: works in the CUDA context that is current on the calling thread, for programs that create CUDA contexts.
    ///
    /// # Safety
    /// That context outlives this one and everything made with it.
    pub unsafe fn use_current_cuda_context(mut self) -> Self {
        self.flags |= sys::GSC_CONTEXT_USE_CURRENT;
        self
    }

    /// Your Vulkan device in place of the CPU. `Unavailable` if it lacks a feature, or if the library has no Vulkan.
    /// Experimental: what concerns Vulkan may change in any release.
    ///
    /// # Safety
    /// `enabled_features` is valid until the context is made. The others outlive it and everything made with it.
    /// Without a [`ContextOptions::queue_mutex`] nothing else uses the queue while a call submits to it.
    pub unsafe fn vulkan_device(mut self, device: VulkanDevice) -> Self {
        self.device_type = DeviceType::Vulkan;
        self.given = Some(Vulkan { device, functions: sys::experimental::Functions::of });
        self
    }

    /// Vulkan: locked around the library's submissions to the queue. Lock it around yours. Experimental.
    pub fn queue_mutex(mut self, mutex: Arc<Mutex<()>>) -> Self {
        self.hooks.queue = Some(Queue::new(mutex));
        self
    }

    /// CPU threads that a call may use, the calling one included. 0: as many as this process may run on. 1: no pool.
    pub fn num_threads(mut self, num_threads: usize) -> Self {
        self.num_threads = num_threads;
        self
    }

    /// The required instruction set. All give the same bits.
    pub fn cpu_target(mut self, cpu_target: CpuTarget) -> Self {
        self.cpu_target = cpu_target;
        self
    }

    /// Your job system in place of the library's pool: a call `(count, body)` runs `body(i)` once for every `i` in
    /// `0..count`, in any order and on any threads, and returns when all have finished. With one thread it is never
    /// called.
    ///
    /// With rayon: `.parallel_for(|count, body| (0..count).into_par_iter().for_each(|i| body(i)))`.
    ///
    /// A closure that leaves tasks out or repeats them is found out: the work is done nevertheless, and the call fails
    /// with `Callback`. If it panics, the panic goes on when the call has done its work.
    pub fn parallel_for(mut self, run: impl Fn(i32, &(dyn Fn(i32) + Sync)) + Send + Sync + 'static) -> Self {
        self.hooks.parallel_for = Some(Box::new(run));
        self
    }

    /// Receives the library's messages, on the thread whose call caused them. Silent without one.
    pub fn log(self, log: impl Fn(crate::LogLevel, &str) + Send + Sync + 'static) -> Self {
        self.hooks.set_log(Some(Arc::new(log)));
        self
    }
}

/// Handles of your Vulkan device for [`ContextOptions::vulkan_device`]: those of the crate `ash` by `as_raw()`.
/// `gradscaler/vulkan.h` has the features that it must be created with. Experimental: this may change in any release.
#[derive(Clone, Copy, Debug)]
pub struct VulkanDevice {
    /// `VkInstance`, of version 1.2 at least.
    pub instance: u64,
    /// `VkPhysicalDevice`.
    pub physical_device: u64,
    /// `VkDevice`.
    pub device: u64,
    /// `VkQueue`, for calls without a command buffer of yours.
    pub queue: u64,
    /// Of `queue`; it has compute.
    pub queue_family: u32,
    /// `vkGetInstanceProcAddr`.
    pub get_instance_proc_addr: *const c_void,
    /// The `VkPhysicalDeviceFeatures2` chain of `vkCreateDevice`. NULL: all that the device supports.
    pub enabled_features: *const c_void,
}

// Only the call that makes a context follows the addresses.
unsafe impl Send for VulkanDevice {}
unsafe impl Sync for VulkanDevice {}

impl VulkanDevice {
    fn to_raw(self, queue: Option<&Queue>) -> sys::experimental::gscx_vulkan_device {
        let mut raw = empty!(experimental::gscx_vulkan_device);
        let handle = |handle: u64| handle as usize as *mut c_void;
        raw.instance = handle(self.instance);
        raw.physical_device = handle(self.physical_device);
        raw.device = handle(self.device);
        raw.queue = handle(self.queue);
        raw.queue_family = self.queue_family;
        raw.get_instance_proc_addr = self.get_instance_proc_addr as *mut c_void;
        raw.enabled_features = self.enabled_features;
        if let Some(queue) = queue {
            raw.lock = Some(callbacks::lock);
            raw.unlock = Some(callbacks::unlock);
            raw.lock_user = queue as *const Queue as *mut c_void;
        }
        raw
    }
}

/// A device: the CPU, a CUDA device, or your Vulkan device. Clones are the same context. It may be shared by any number
/// of threads and lives until the last object made with it is gone.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    api: &'static sys::gsc_api,
    handle: NonNull<sys::gsc_context>,
    device_type: DeviceType,
    stream: AtomicPtr<c_void>,
    hooks: Box<Hooks>,
}

// The header: a context may be used by any number of threads. The closures are Send and Sync.
unsafe impl Send for Inner {}
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // The last reference, since everything made with the context holds a clone: the hooks can go.
        unsafe { (self.api.context_destroy)(self.handle.as_ptr()) };
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device_type", &self.inner.device_type).finish_non_exhaustive()
    }
}

impl Context {
    /// Opens a device. No thread is started before the first parallel call. Errors: `InvalidArgument`, `Unavailable`,
    /// `OutOfMemory`.
    pub fn new(options: ContextOptions) -> Result<Self> {
        let api = api()?;
        let hooks = Box::new(options.hooks);
        let user = &*hooks as *const Hooks as *mut c_void;
        let mut raw = empty!(gsc_context_options);
        check(api, unsafe { (api.context_options_init)(&mut raw, raw.struct_size) })?;
        raw.flags = options.flags;
        raw.device_type = options.device_type as i32;
        raw.device_index = number(options.device_index);
        raw.num_threads = number(options.num_threads);
        raw.cpu_target = options.cpu_target as i32;
        raw.log = Some(callbacks::log);
        raw.log_user = user;
        if hooks.parallel_for.is_some() {
            raw.parallel_for = Some(callbacks::parallel_for);
            raw.parallel_for_user = user;
        }
        let mut handle = ptr::null_mut();
        let status = match options.given {
            None => unsafe { (api.context_create)(&raw, &mut handle) },
            Some(Vulkan { device, functions }) => {
                let create = functions(api)
                    .context_create_vulkan
                    .ok_or_else(|| Error::new(Status::Unavailable, "this library has no gscx_context_create_vulkan"))?;
                unsafe { create(&raw, &device.to_raw(hooks.queue.as_ref()), &mut handle) }
            }
        };
        check(api, status)?;
        let handle = NonNull::new(handle).expect("a context");
        let stream = AtomicPtr::new(ptr::null_mut());
        Ok(Context { inner: Arc::new(Inner { api, handle, device_type: options.device_type, stream, hooks }) })
    }

    /// The CPU with all its threads.
    pub fn cpu() -> Result<Self> {
        Context::new(ContextOptions::default())
    }

    /// A CUDA device.
    pub fn cuda(index: usize) -> Result<Self> {
        Context::new(ContextOptions::default().cuda(index))
    }

    /// The kind of device.
    pub fn device_type(&self) -> DeviceType {
        self.inner.device_type
    }

    /// The number of the device among those of its kind.
    pub fn device_index(&self) -> Result<usize> {
        let mut index = 0;
        call!(self.context_get_device(ptr::null_mut(), &mut index))?;
        Ok(index as usize)
    }

    /// The instruction set in use on the CPU.
    pub fn cpu_target(&self) -> Result<CpuTarget> {
        let mut target = 0;
        call!(self.context_get_cpu(&mut target, ptr::null_mut()))?;
        CpuTarget::try_from(target)
            .map_err(|code| Error::new(Status::Internal, format!("the CPU target {code} is unknown to this crate")))
    }

    /// The CPU threads that a call may use.
    pub fn num_threads(&self) -> Result<usize> {
        let mut count = 0;
        call!(self.context_get_cpu(ptr::null_mut(), &mut count))?;
        Ok(count as usize)
    }

    /// Bytes of host and of device memory that the library holds for this context and its objects, without scratch of
    /// a GPU. On the CPU all memory is host memory.
    pub fn memory(&self) -> Result<(i64, i64)> {
        let (mut host, mut device) = (0, 0);
        call!(self.context_get_memory(&mut host, &mut device))?;
        Ok((host, device))
    }

    /// Replaces the log; `None` silences.
    pub fn set_log(&self, log: Option<impl Fn(crate::LogLevel, &str) + Send + Sync + 'static>) {
        self.inner.hooks.set_log(log.map(|log| Arc::new(log) as Arc<Log>));
    }

    /// The CUDA stream (`cudaStream_t` or `CUstream`) on which calls on objects of this context enqueue their work from
    /// now on. The default stream to begin with; the CPU ignores it. On Vulkan a `VkCommandBuffer`, such as
    /// `commands.as_raw() as *mut c_void`, into which they record; NULL, for calls that wait too: the library submits.
    ///
    /// # Safety
    /// The stream is one of this device, and lives until it is replaced here and its work is done. A command buffer is
    /// in the recording state, outside of a render pass, until it is replaced here. Objects that it uses live until it
    /// has run for the last time, and nothing else of this context runs at the same time.
    pub unsafe fn set_stream(&self, stream: *mut c_void) {
        self.inner.stream.store(stream, Ordering::Release);
    }

    /// The handle, for calls through `gradscaler-sys`. Valid as long as this or a clone.
    pub fn as_ptr(&self) -> *mut sys::gsc_context {
        self.inner.handle.as_ptr()
    }

    /// For call!, as every object has it.
    pub(crate) fn context(&self) -> &Self {
        self
    }

    pub(crate) fn api(&self) -> &'static sys::gsc_api {
        self.inner.api
    }

    pub(crate) fn stream(&self) -> sys::gsc_stream {
        self.inner.stream.load(Ordering::Acquire)
    }

    pub(crate) fn judge(&self, status: sys::gsc_status) -> Result<()> {
        check(self.inner.api, status)
    }

    /// For what reads or writes host memory in device memory's place.
    pub(crate) fn require_cpu(&self, what: &str) -> Result<()> {
        match self.inner.device_type {
            DeviceType::Cpu => Ok(()),
            _ => Err(Error::new(
                Status::Unsupported,
                format!("{what} works on host memory, but the context is a GPU; use gradscaler-sys"),
            )),
        }
    }
}
