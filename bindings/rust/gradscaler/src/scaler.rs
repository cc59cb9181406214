// SPDX-License-Identifier: Apache-2.0
// The scaler: the scale with its policy, and the iteration that it takes gradients through.
use crate::callbacks::{self, Reducer};
use crate::error::Cause;
use crate::in_use::{Entered, InUse};
use crate::optimizer::first_and_count;
use crate::tensor_list::require_place;
use crate::{
    Context, DeviceState, DeviceType, Gradients, HistoryEntry, Norm, Optimizer, Report, Result, ScalerOptions,
    ScalerState, Status, Tensor, TensorRef,
};
use gradscaler_sys as sys;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{self, size_of};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

/// The scale, its policy, counters and history. Gradients are those of an [`Optimizer`], or a
/// [`TensorList`](crate::TensorList) for your own optimizer.
///
/// ```
/// use gradscaler::{Context, GradScaler, Optimizer, OptimizerOptions, ScalerOptions, TensorList};
///
/// let context = Context::cpu()?;
/// let params = TensorList::new(&context, [vec![1.0f32; 4]])?;
/// let grads = TensorList::new(&context, [vec![0.0f32; 4]])?;
/// let mut optimizer = Optimizer::new(OptimizerOptions::sgd().lr(0.5), (params, grads))?;
/// let mut scaler = GradScaler::new(&context, ScalerOptions::default())?;
/// for true_gradient in [1.0, f32::INFINITY] {
///     let scale = scaler.scale()?;
///     optimizer.grads_mut().get_mut::<f32>(0)?.fill(true_gradient * scale); // your backward pass
///     scaler.step(&mut optimizer)?; // skipped if a gradient is inf or NaN
///     scaler.update()?; // grows the scale, or backs off
/// }
/// assert_eq!(optimizer.params().get::<f32>(0)?, [0.5; 4]);
/// assert_eq!(scaler.scale()?, 32768.0);
/// # Ok::<(), gradscaler::Error>(())
/// ```
pub struct GradScaler {
    // In this order: the handle goes first, the context last.
    handle: NonNull<sys::gsc_scaler>,
    reducer: Option<NonNull<Reducer>>,
    /// Lists that may be in the iteration, which `update` returns to READY.
    iteration: Vec<Arc<InUse>>,
    context: Context,
    not_sync: PhantomData<Cell<()>>,
}

// The header: one object from one thread at a time, destroyed on any. The reducer is Send. Lists of the iteration that
// have moved to other threads are found in use.
unsafe impl Send for GradScaler {}

impl Drop for GradScaler {
    fn drop(&mut self) {
        // Destroying it returns its lists to READY. Where one is in another thread's call at this moment, which is an
        // error of the program's, the scaler is left where it is.
        if Entered::new(&self.iteration).is_ok() {
            unsafe { (self.context.api().scaler_destroy)(self.handle.as_ptr()) };
            self.drop_reducer();
        } else {
            mem::forget(self.context.clone());
        }
    }
}

impl fmt::Debug for GradScaler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GradScaler").field("context", &self.context).finish_non_exhaustive()
    }
}

impl GradScaler {
    /// Makes a scaler whose state lives in memory of the context's device. Errors: `InvalidArgument` naming the option;
    /// `OutOfMemory`.
    pub fn new(context: &Context, options: ScalerOptions) -> Result<Self> {
        let options = options.to_raw()?;
        let mut handle = ptr::null_mut();
        call!(context.scaler_create(&options, &mut handle))?;
        Ok(GradScaler {
            handle: NonNull::new(handle).expect("a scaler"),
            reducer: None,
            iteration: Vec::new(),
            context: context.clone(),
            not_sync: PhantomData,
        })
    }

    // The iteration.

    /// The scale; 1 if the scaler is disabled. Multiply the loss by it. On a GPU waits for it; see
    /// [`GradScaler::scale_into`].
    pub fn scale(&self) -> Result<f32> {
        let mut scale = 0.0;
        call!(self.scaler_get_scale_sync(&mut scale, self.stream()))?;
        Ok(scale)
    }

    /// `dst[i] = src[i] * scale`, without waiting for the scale: for the loss, or the first gradient of the backward
    /// pass. Dtypes may differ; rounded to nearest even. Not checked for overflow. Disabled: a copy.
    pub fn scale_into<'s, 'd>(&mut self, src: impl Into<TensorRef<'s>>, dst: impl Into<Tensor<'d>>) -> Result<()> {
        let (src, dst) = (src.into(), dst.into());
        require_place(&self.context, src.is_host(), format_args!("src"))?;
        require_place(&self.context, dst.is_host(), format_args!("dst"))?;
        call!(self.scaler_scale(src.raw(), dst.raw(), 1, self.stream()))
    }

    /// The fused step. Checks the optimizer's gradients unless that has been done. If all are finite, unscales, clips
    /// and applies them in one pass; else leaves parameters and state bit-identical and counts the step as skipped.
    /// Errors: `BadState` if stepped since the last update.
    pub fn step(&mut self, optimizer: &mut Optimizer<'_>) -> Result<()> {
        let _entered = self.enter(optimizer)?;
        call!(self.scaler_step(optimizer.as_ptr(), optimizer.stream()))
    }

    /// The next slice of [`GradScaler::step`], for programs with a frame rate: reads and writes at most `max_bytes`,
    /// but at least one chunk of up to 65536 elements. Returns the bytes that are left, 0 when the step is done.
    /// Errors: as `step`; `InvalidArgument` if `max_bytes` is less than 1.
    pub fn step_slice(&mut self, optimizer: &mut Optimizer<'_>, max_bytes: i64) -> Result<i64> {
        let mut left = 0;
        let _entered = self.enter(optimizer)?;
        call!(self.scaler_step_slice(optimizer.as_ptr(), max_bytes, &mut left, optimizer.stream()))?;
        Ok(left)
    }

    /// Ends the iteration: backs the scale off if any list checked since the last update had an inf or NaN, else counts
    /// a clean step and perhaps grows. Errors: `BadState` if no list was checked, unscaled or stepped since the last
    /// update, or if [`GradScaler::check_range`] has checked one only in part. Disabled: does nothing.
    pub fn update(&mut self) -> Result<()> {
        self.end_iteration(|scaler| call!(scaler.scaler_update(scaler.stream())))
    }

    /// [`GradScaler::step`] and [`GradScaler::update`] in one call, for loops with a single optimizer. Errors: those of
    /// both; `InvalidArgument` if the optimizer belongs to another context than the scaler.
    pub fn step_and_update(&mut self, optimizer: &mut Optimizer<'_>) -> Result<()> {
        self.join(optimizer);
        self.end_iteration(|scaler| call!(scaler.scaler_step_and_update(optimizer.as_ptr(), scaler.stream())))
    }

    /// Multiplies the gradients by 1 / scale in place, and records their norm and whether any is inf or NaN. Errors:
    /// `BadState` if already unscaled or stepped since the last update. Disabled: does nothing.
    pub fn unscale(&mut self, grads: &mut impl Gradients) -> Result<()> {
        let _entered = self.enter(grads)?;
        call!(self.scaler_unscale(grads.list(), grads.stream()))
    }

    /// Records the same without writing the gradients; [`GradScaler::step`] then unscales in its own pass. Errors:
    /// `BadState` if checked, unscaled or stepped since the last update. Disabled: does nothing.
    pub fn check(&mut self, grads: &mut impl Gradients) -> Result<()> {
        let _entered = self.enter(grads)?;
        call!(self.scaler_check(grads.list(), grads.stream()))
    }

    /// Checks a range of tensors only, while a backward pass is still producing the others. `step` and `check` check
    /// what is missing. Errors: as `check`; `InvalidArgument` for a range outside the list; `BadState` if a tensor was
    /// checked already.
    pub fn check_range(&mut self, grads: &mut impl Gradients, tensors: Range<usize>) -> Result<()> {
        let (first, count) = first_and_count(&tensors);
        let _entered = self.enter(grads)?;
        call!(self.scaler_check_range(grads.list(), first, count, grads.stream()))
    }

    /// Limits the norm of the unscaled gradients: `g *= min(1, max_norm / (norm + 1e-6))`, PyTorch's rule. On unscaled
    /// gradients now; otherwise [`GradScaler::step`] folds the factor into its own pass. Gradients with an inf or NaN
    /// stay as they are. Errors: `InvalidArgument` if `max_norm` is negative or not finite; `BadState` after `step`, or
    /// after another clip in this iteration; `Unsupported`: [`Norm::Inf`] together with a reducer.
    pub fn clip_grad_norm(&mut self, grads: &mut impl Gradients, max_norm: f64, norm: Norm) -> Result<()> {
        let _entered = self.enter(grads)?;
        call!(self.scaler_clip_grad_norm(grads.list(), max_norm, norm as i32, grads.stream()))
    }

    /// Clamps every unscaled gradient to `[-clip_value, clip_value]`, after `clip_grad_norm` if both are used. In place
    /// on unscaled gradients, otherwise folded into [`GradScaler::step`]. Errors: `InvalidArgument` if `clip_value` is
    /// negative or NaN; `BadState` after `step`.
    pub fn clip_grad_value(&mut self, grads: &mut impl Gradients, clip_value: f64) -> Result<()> {
        let _entered = self.enter(grads)?;
        call!(self.scaler_clip_grad_value(grads.list(), clip_value, grads.stream()))
    }

    /// Replaces [`GradScaler::step`] for your own optimizer: checks the gradients unless they have been checked, and
    /// returns whether to apply the step. Your optimizer divides by the scale unless the gradients were unscaled. A
    /// pending `clip_grad_norm` is applied now. Disabled: always true. Errors: as `step`; `BadState` if a
    /// `clip_grad_value` is pending: call `unscale` before it.
    pub fn should_step(&mut self, grads: &mut impl Gradients) -> Result<bool> {
        let mut apply = 0;
        let _entered = self.enter(grads)?;
        call!(self.scaler_should_step_sync(grads.list(), &mut apply, grads.stream()))?;
        Ok(apply != 0)
    }

    /// Forgets what was recorded of these gradients in this iteration, as if they had not been checked. The scale, the
    /// trackers and the gradients are not touched.
    pub fn discard(&mut self, grads: &mut impl Gradients) -> Result<()> {
        let _entered = self.enter(grads)?;
        call!(self.scaler_discard(grads.list()))
    }

    /// [`GradScaler::discard`] for all gradients of this iteration.
    pub fn discard_all(&mut self) -> Result<()> {
        self.end_iteration(|scaler| call!(scaler.scaler_discard(ptr::null_mut())))
    }

    /// Replaces the scale (finite, > 0), as PyTorch's `update(new_scale)`: the growth tracker is kept, the iteration
    /// starts again, `min_scale` and `max_scale` do not apply. Disabled: does nothing.
    pub fn set_scale(&mut self, scale: f32) -> Result<()> {
        self.end_iteration(|scaler| call!(scaler.scaler_set_scale(scale, scaler.stream())))
    }

    // Looking at it.

    /// The state now, and what the last update found over all its gradients. Errors: `ScaleFloor` under
    /// [`FloorAction::Error`](crate::FloorAction::Error) and `Spikes` under
    /// [`SpikeAction::Error`](crate::SpikeAction::Error), with the report in the error.
    pub fn report(&self) -> Result<Report> {
        self.read_report(ptr::null())
    }

    /// The state now, and what the last check of these gradients found. Errors: those of [`GradScaler::report`];
    /// `BadState` if they were never checked by this scaler.
    pub fn report_of(&self, grads: &impl Gradients) -> Result<Report> {
        let _entered = Entered::new(slice::from_ref(grads.in_use()))?;
        self.read_report(grads.list())
    }

    /// Enqueues a copy of a report, which is valid when the stream has passed this point; `Report::from` converts it.
    /// Never fails with `ScaleFloor` or `Spikes`.
    ///
    /// # Safety
    /// `out` is pinned host memory (any on the CPU), on Vulkan a `VkDeviceAddress`. It stays valid, and untouched,
    /// until then.
    pub unsafe fn read_report_async(&self, grads: Option<&dyn Gradients>, out: *mut sys::gsc_report) -> Result<()> {
        let _entered = grads.map(|grads| Entered::new(slice::from_ref(grads.in_use()))).transpose()?;
        let list = grads.map_or(ptr::null_mut(), |grads| grads.list());
        if self.context.device_type() != DeviceType::Vulkan {
            (*out).struct_size = size_of::<sys::gsc_report>() as u32;
        }
        call!(self.scaler_read_report_async(list, out, self.stream()))
    }

    /// The newest updates, oldest first, at most `capacity`.
    pub fn history(&self, capacity: usize) -> Result<Vec<HistoryEntry>> {
        let mut count = 0;
        call!(self.scaler_get_history_sync(ptr::null_mut(), 0, &mut count, self.stream()))?;
        let mut entries = Vec::with_capacity(capacity.min(count as usize));
        let room = entries.capacity().min(count as usize) as i64;
        call!(self.scaler_get_history_sync(entries.as_mut_ptr(), room, &mut count, self.stream()))?;
        // As many have been written.
        unsafe { entries.set_len(count as usize) };
        Ok(entries.iter().map(HistoryEntry::from).collect())
    }

    /// Addresses of the scaler's numbers in device memory, for your own kernels.
    pub fn device_state(&self) -> Result<DeviceState> {
        self.read_device_state(ptr::null())
    }

    /// The same, with those of the gradients. Of gradients on another device: the copies there, valid as long as the
    /// gradients. Errors: `BadState` if they are of another context and this scaler has not used them yet.
    pub fn device_state_of(&self, grads: &impl Gradients) -> Result<DeviceState> {
        let _entered = Entered::new(slice::from_ref(grads.in_use()))?;
        self.read_device_state(grads.list())
    }

    // Options, checkpoints and ranks.

    /// The options. `init_scale` is the one given at creation.
    pub fn options(&self) -> Result<ScalerOptions> {
        let mut raw = empty!(gsc_scaler_options);
        call!(self.scaler_get_options(&mut raw))?;
        Ok(ScalerOptions::from(&raw))
    }

    /// Replaces the options; scale, trackers and history stay. `init_scale`, `enabled` and `history_capacity` must be
    /// as at creation.
    pub fn set_options(&mut self, options: &ScalerOptions) -> Result<()> {
        call!(self.scaler_set_options(&options.to_raw()?, self.stream()))
    }

    /// The state, for a checkpoint. Errors: `BadState` if the scaler is disabled.
    pub fn state(&self) -> Result<ScalerState> {
        let mut raw = empty!(gsc_scaler_state);
        call!(self.scaler_get_state_sync(&mut raw, self.stream()))?;
        Ok(ScalerState::from(&raw))
    }

    /// Restores a state, its factors and interval included; the iteration and the history start again. It is validated
    /// as a whole first. Errors: `InvalidArgument` for a value out of range. Disabled: does nothing.
    pub fn set_state(&mut self, state: &ScalerState) -> Result<()> {
        let state = state.to_raw();
        self.end_iteration(|scaler| call!(scaler.scaler_set_state(&state, scaler.stream())))
    }

    /// Joins the checks over the ranks of a job: `reduce` replaces the numbers by their sums over all ranks. If one
    /// rank overflows all skip, and clipping uses the norm over all ranks. Every rank checks the same gradients in the
    /// same order. A check or step whose reduction fails gives `Callback`, with what `reduce` returned as its source.
    /// Errors: `BadState` if gradients were checked since the last update; `Unsupported` on a GPU, where
    /// `gsc_scaler_set_reducer` takes a function that enqueues.
    pub fn set_reducer(
        &mut self,
        reduce: impl FnMut(&mut [f64]) -> std::result::Result<(), Cause> + Send + 'static,
    ) -> Result<()> {
        self.context.require_cpu("set_reducer")?;
        let user = Box::into_raw(Reducer::new(Box::new(reduce)));
        let raw = sys::gsc_reducer {
            struct_size: size_of::<sys::gsc_reducer>() as u32,
            flags: 0,
            all_reduce: Some(callbacks::all_reduce),
            user: user.cast(),
        };
        let result = call!(self.scaler_set_reducer(&raw));
        if result.is_err() {
            drop(unsafe { Box::from_raw(user) });
            return result;
        }
        self.drop_reducer();
        self.reducer = NonNull::new(user);
        Ok(())
    }

    /// Removes the reducer. Errors: `BadState` if gradients were checked since the last update.
    pub fn remove_reducer(&mut self) -> Result<()> {
        call!(self.scaler_set_reducer(ptr::null()))?;
        self.drop_reducer();
        Ok(())
    }

    /// The context it was made with.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The handle, for calls through `gradscaler-sys`. Valid as long as the scaler.
    pub fn as_ptr(&self) -> *mut sys::gsc_scaler {
        self.handle.as_ptr()
    }

    fn stream(&self) -> sys::gsc_stream {
        self.context.stream()
    }

    fn judge(&self, status: sys::gsc_status) -> Result<()> {
        let reducer = self.reducer.map_or(ptr::null_mut(), NonNull::as_ptr);
        unsafe { callbacks::explain(self.context.judge(status), reducer) }
    }

    fn drop_reducer(&mut self) {
        if let Some(reducer) = self.reducer.take() {
            drop(unsafe { Box::from_raw(reducer.as_ptr()) });
        }
    }

    fn join(&mut self, grads: &impl Gradients) {
        let in_use = grads.in_use();
        if !self.iteration.iter().any(|list| Arc::ptr_eq(list, in_use)) {
            self.iteration.push(Arc::clone(in_use));
        }
    }

    /// Takes gradients into the iteration, for a call on them.
    fn enter<'g>(&mut self, grads: &'g impl Gradients) -> Result<Entered<'g>> {
        self.join(grads);
        Entered::new(slice::from_ref(grads.in_use()))
    }

    /// A call that ends the iteration, and so uses all its lists.
    fn end_iteration(&mut self, call: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        let entered = Entered::new(&self.iteration)?;
        call(self)?;
        drop(entered);
        self.iteration.clear();
        Ok(())
    }

    fn read_report(&self, list: *const sys::gsc_tensor_list) -> Result<Report> {
        let mut raw = empty!(gsc_report);
        match call!(self.scaler_get_report_sync(list, &mut raw, self.stream())) {
            Ok(()) => Ok(Report::from(&raw)),
            Err(error) if matches!(error.status(), Status::ScaleFloor | Status::Spikes) => {
                Err(error.with_report(Report::from(&raw)))
            }
            Err(error) => Err(error),
        }
    }

    fn read_device_state(&self, list: *const sys::gsc_tensor_list) -> Result<DeviceState> {
        let mut raw = empty!(gsc_device_state);
        call!(self.scaler_get_device_state(list, &mut raw))?;
        Ok(DeviceState::from(&raw))
    }
}
