// SPDX-License-Identifier: Apache-2.0
// Optimizers: an update formula over lists, which it takes in. A scaler drives it.
use crate::in_use::Entered;
use crate::library::number;
use crate::tensor_list::{State, StateMut, TensorListMut};
use crate::{Context, OptimizerOptions, Result, TensorList};
use gradscaler_sys as sys;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;

/// What an optimizer works on. A pair is parameters and gradients.
#[derive(Debug)]
pub struct Lists<'a> {
    /// What is updated: master weights in fp32 or fp64, or 16-bit weights directly.
    pub params: TensorList<'a>,
    /// A gradient for each parameter, of any dtype.
    pub grads: TensorList<'a>,
    /// Receives every updated parameter rounded to its dtype: the 16-bit weights of the next forward pass.
    pub model_copy: Option<TensorList<'a>>,
    /// A list for each state slot of the kind, initialized; empty: the library makes them, zeroed.
    pub state: Vec<TensorList<'a>>,
}

impl<'a> From<(TensorList<'a>, TensorList<'a>)> for Lists<'a> {
    fn from((params, grads): (TensorList<'a>, TensorList<'a>)) -> Self {
        Lists { params, grads, model_copy: None, state: Vec::new() }
    }
}

/// Steps of an optimizer so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Steps that moved the parameters. Bias corrections depend on them.
    pub applied: u64,
    /// Steps that an overflow stopped.
    pub skipped: u64,
}

/// The lists of an optimizer, to write several at once.
#[derive(Debug)]
pub struct ListsMut<'o, 'a> {
    /// The parameters.
    pub params: TensorListMut<'o, 'a>,
    /// The gradients.
    pub grads: TensorListMut<'o, 'a>,
    /// The model copy, if there is one.
    pub model_copy: Option<TensorListMut<'o, 'a>>,
}

/// AdamW, SGD or another kind over a list of parameters and a list of gradients, which it takes in:
///
/// ```
/// use gradscaler::{Context, Optimizer, OptimizerOptions, TensorList};
///
/// let context = Context::cpu()?;
/// let params = TensorList::new(&context, [vec![1.0f32; 4]])?;
/// let grads = TensorList::new(&context, [vec![0.0f32; 4]])?;
/// let mut sgd = Optimizer::new(OptimizerOptions::sgd().lr(0.5), (params, grads))?;
/// sgd.grads_mut().get_mut::<f32>(0)?.fill(1.0); // your backward pass
/// sgd.step()?;
/// assert_eq!(sgd.params().get::<f32>(0)?, [0.5; 4]);
/// # Ok::<(), gradscaler::Error>(())
/// ```
///
/// What is borrowed from it ends before the next step:
///
/// ```compile_fail,E0502
/// # use gradscaler::{Context, Optimizer, OptimizerOptions, TensorList};
/// # let context = Context::cpu()?;
/// # let params = TensorList::new(&context, [vec![1.0f32; 4]])?;
/// # let grads = TensorList::new(&context, [vec![0.0f32; 4]])?;
/// # let mut sgd = Optimizer::new(OptimizerOptions::sgd(), (params, grads))?;
/// let weights = sgd.params().get::<f32>(0)?;
/// sgd.step()?; // writes what `weights` points to
/// println!("{}", weights[0]);
/// # Ok::<(), gradscaler::Error>(())
/// ```
#[derive(Debug)]
pub struct Optimizer<'a> {
    handle: Handle,
    lists: Lists<'a>,
    not_sync: PhantomData<Cell<()>>,
}

/// Goes before the lists.
#[derive(Debug)]
struct Handle {
    pointer: NonNull<sys::gsc_optimizer>,
    context: Context,
}

// The header: one object from one thread at a time, destroyed on any.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { (self.context.api().optimizer_destroy)(self.pointer.as_ptr()) };
    }
}

impl<'a> Optimizer<'a> {
    /// Makes an optimizer. Errors: `InvalidArgument` naming list and index: different lengths, counts or contexts,
    /// state of a wrong dtype, buffers that overlap, an option out of range; `OutOfMemory`.
    pub fn new(options: OptimizerOptions, lists: impl Into<Lists<'a>>) -> Result<Self> {
        let lists = lists.into();
        let context = lists.params.context().clone();
        let options = options.to_raw()?;
        let state: Vec<_> = lists.state.iter().map(TensorList::as_ptr).collect();
        let mut pointer = ptr::null_mut();
        call!(context.optimizer_create(
            &options,
            lists.params.as_ptr(),
            lists.grads.as_ptr(),
            lists.model_copy.as_ref().map_or(ptr::null_mut(), TensorList::as_ptr),
            if state.is_empty() { ptr::null() } else { state.as_ptr() },
            state.len() as i32,
            &mut pointer
        ))?;
        let pointer = NonNull::new(pointer).expect("an optimizer");
        Ok(Optimizer { handle: Handle { pointer, context }, lists, not_sync: PhantomData })
    }

    /// The parameters.
    pub fn params(&self) -> &TensorList<'a> {
        &self.lists.params
    }

    /// The parameters, to write.
    pub fn params_mut(&mut self) -> TensorListMut<'_, 'a> {
        TensorListMut::new(&mut self.lists.params)
    }

    /// The gradients.
    pub fn grads(&self) -> &TensorList<'a> {
        &self.lists.grads
    }

    /// The gradients, to write.
    pub fn grads_mut(&mut self) -> TensorListMut<'_, 'a> {
        TensorListMut::new(&mut self.lists.grads)
    }

    /// The model copy, if there is one.
    pub fn model_copy(&self) -> Option<&TensorList<'a>> {
        self.lists.model_copy.as_ref()
    }

    /// All of these at once, to write.
    pub fn lists_mut(&mut self) -> ListsMut<'_, 'a> {
        ListsMut {
            params: TensorListMut::new(&mut self.lists.params),
            grads: TensorListMut::new(&mut self.lists.grads),
            model_copy: self.lists.model_copy.as_mut().map(TensorListMut::new),
        }
    }

    /// Steps without a scaler: no check, no unscaling. Errors: `BadState` if a scaler has checked the gradients and not
    /// unscaled them, or a clip is pending.
    pub fn step(&mut self) -> Result<()> {
        let _entered = self.enter()?;
        call!(self.optimizer_step(self.stream()))
    }

    /// Steps with your own numbers: gradients are multiplied by `inv_scale`; the step is skipped if `found_inf`.
    /// Errors: `Unsupported` on a GPU.
    pub fn step_scaled(&mut self, inv_scale: f32, found_inf: bool) -> Result<()> {
        self.handle.context.require_cpu("step_scaled")?;
        let _entered = self.enter()?;
        let found_inf = f32::from(u8::from(found_inf));
        call!(self.optimizer_step_scaled(&inv_scale, &found_inf, self.stream()))
    }

    /// Sets the gradients to zero. [`OptimizerOptions::zero_grads`] does it within the step.
    pub fn zero_grads(&mut self) -> Result<()> {
        call!(self.optimizer_zero_grads(self.stream()))
    }

    /// Gives a range of tensors separate hyper-parameters, and returns the number of the group: 1, 2, ... Kind and
    /// flags must be the optimizer's. A tensor can be moved out of group 0 once.
    pub fn add_group(&mut self, tensors: Range<usize>, options: &OptimizerOptions) -> Result<usize> {
        let (first, count) = first_and_count(&tensors);
        let mut group = 0;
        call!(self.optimizer_add_group(first, count, &options.to_raw()?, &mut group))?;
        Ok(group as usize)
    }

    /// Hyper-parameters of a group.
    pub fn options(&self, group: usize) -> Result<OptimizerOptions> {
        let mut raw = empty!(gsc_optimizer_options);
        call!(self.optimizer_get_options(number(group), &mut raw))?;
        Ok(OptimizerOptions::from(&raw))
    }

    /// Replaces them from the next step on. Kind, flags and whether momentum is 0 must stay.
    pub fn set_options(&mut self, group: usize, options: &OptimizerOptions) -> Result<()> {
        call!(self.optimizer_set_options(number(group), &options.to_raw()?, self.stream()))
    }

    /// Sets the learning rate of a group from the next step on.
    pub fn set_lr(&mut self, group: usize, lr: f64) -> Result<()> {
        call!(self.optimizer_set_lr(number(group), lr, self.stream()))
    }

    /// Takes the parameters of a Schedule-Free optimizer to the averaged weights, or back. Steps fail while evaluating.
    pub fn set_evaluating(&mut self, evaluating: bool) -> Result<()> {
        call!(self.optimizer_set_evaluating(evaluating.into(), self.stream()))
    }

    /// Reads the learning rate of a group from device memory at every step; NULL returns to the last one that was set.
    ///
    /// # Safety
    /// The number is in memory of the context's device, outlives its use here, and is not written while a step reads
    /// it.
    pub unsafe fn set_device_lr(&mut self, group: usize, device_lr: *const f32) -> Result<()> {
        call!(self.optimizer_set_device_lr(number(group), device_lr, self.stream()))
    }

    /// A state slot: its name and its tensors.
    pub fn state(&self, slot: usize) -> Result<State<'_>> {
        let (mut list, mut name) = (ptr::null_mut(), ptr::null());
        call!(self.optimizer_get_state(number(slot), &mut list, &mut name))?;
        Ok(State { context: &self.handle.context, list, name })
    }

    /// A state slot, to write.
    pub fn state_mut(&mut self, slot: usize) -> Result<StateMut<'_>> {
        self.state(slot).map(StateMut)
    }

    /// Steps so far.
    pub fn steps(&self) -> Result<Steps> {
        let (mut applied, mut skipped) = (0, 0);
        call!(self.optimizer_get_steps_sync(&mut applied, &mut skipped, self.stream()))?;
        Ok(Steps { applied: applied as u64, skipped: skipped as u64 })
    }

    /// Elements whose parameter an applied step left as it was, summed over the steps; 0 unless `count_unchanged` is
    /// set.
    pub fn unchanged(&self) -> Result<u64> {
        let mut unchanged = 0;
        call!(self.optimizer_get_unchanged_sync(&mut unchanged, self.stream()))?;
        Ok(unchanged as u64)
    }

    /// Sets the step counts, for a checkpoint that was kept field by field.
    pub fn set_steps(&mut self, steps: Steps) -> Result<()> {
        call!(self.optimizer_set_steps(steps.applied as i64, steps.skipped as i64, self.stream()))
    }

    /// Applied steps of each tensor: those in which its gradient was present.
    pub fn tensor_steps(&self) -> Result<Vec<u64>> {
        let mut steps = vec![0i64; self.params().len()];
        call!(self.optimizer_get_tensor_steps_sync(steps.as_mut_ptr(), steps.len() as i64, self.stream()))?;
        Ok(steps.into_iter().map(|steps| steps as u64).collect())
    }

    /// Sets the applied steps of each tensor. The applied steps of the optimizer become the largest.
    pub fn set_tensor_steps(&mut self, steps: &[u64]) -> Result<()> {
        let steps: Vec<i64> = steps.iter().map(|&steps| steps as i64).collect();
        call!(self.optimizer_set_tensor_steps(steps.as_ptr(), steps.len() as i64, self.stream()))
    }

    /// Where each tensor begins in the whole that this optimizer has a shard of: multiples of 32, one per tensor, by
    /// which a shard draws the random bits of stochastic rounding that the whole draws. They are not saved. Default:
    /// the number of elements in the tensors before it, each rounded up to a multiple of 32.
    pub fn set_offsets(&mut self, offsets: &[i64]) -> Result<()> {
        call!(self.optimizer_set_offsets(offsets.as_ptr(), offsets.len() as i64, self.stream()))
    }

    /// Step counts and all state tensors, with a header that describes them and a checksum.
    pub fn save(&mut self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.save_size()?];
        self.save_to(&mut bytes)?;
        Ok(bytes)
    }

    /// As [`Optimizer::save`], to memory of exactly the size that it has.
    pub fn save_to(&mut self, bytes: &mut [u8]) -> Result<()> {
        call!(self.optimizer_save_sync(bytes.as_mut_ptr().cast(), bytes.len() as i64, self.stream()))
    }

    /// Restores what [`Optimizer::save`] wrote on a machine of the same byte order. All of it is checked first. Errors:
    /// `InvalidArgument` for truncated, damaged or foreign data, another kind, other counts or dtypes.
    pub fn load(&mut self, bytes: &[u8]) -> Result<()> {
        call!(self.optimizer_load_sync(bytes.as_ptr().cast(), bytes.len() as i64, self.stream()))
    }

    /// The context of its lists.
    pub fn context(&self) -> &Context {
        &self.handle.context
    }

    /// The handle, for calls through `gradscaler-sys`. Valid as long as the optimizer.
    pub fn as_ptr(&self) -> *mut sys::gsc_optimizer {
        self.handle.pointer.as_ptr()
    }

    /// For calls that ask in whose iteration the gradients are, which the `update` of that scaler changes.
    fn enter(&self) -> Result<Entered<'_>> {
        Entered::new(slice::from_ref(&self.lists.grads.in_use))
    }

    pub(crate) fn stream(&self) -> sys::gsc_stream {
        self.handle.context.stream()
    }

    pub(crate) fn judge(&self, status: sys::gsc_status) -> Result<()> {
        self.handle.context.judge(status)
    }
}

/// A range as the library takes it, which refuses one that is reversed as a count below 0.
pub(crate) fn first_and_count(range: &Range<usize>) -> (i64, i64) {
    (range.start as i64, range.end.wrapping_sub(range.start) as i64)
}

/// Where the gradients are. Private, so that nothing else can be passed for them.
mod sealed {
    use crate::in_use::InUse;
    use crate::TensorList;
    use gradscaler_sys::{gsc_stream, gsc_tensor_list};
    use std::sync::Arc;

    pub trait Sealed {
        fn tensors(&self) -> &TensorList<'_>;

        fn list(&self) -> *mut gsc_tensor_list {
            self.tensors().as_ptr()
        }

        fn in_use(&self) -> &Arc<InUse> {
            &self.tensors().in_use
        }

        /// That of their device.
        fn stream(&self) -> gsc_stream {
            self.tensors().context().stream()
        }
    }
}

/// Gradients for a scaler: a [`TensorList`], or those of an [`Optimizer`].
pub trait Gradients: sealed::Sealed {}
impl Gradients for TensorList<'_> {}
impl Gradients for Optimizer<'_> {}

impl sealed::Sealed for TensorList<'_> {
    fn tensors(&self) -> &TensorList<'_> {
        self
    }
}

impl sealed::Sealed for Optimizer<'_> {
    fn tensors(&self) -> &TensorList<'_> {
        &self.lists.grads
    }
}
