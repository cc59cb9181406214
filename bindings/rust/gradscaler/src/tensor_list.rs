// SPDX-License-Identifier: Apache-2.0
// Lists of tensors. A list holds its buffers, so that nothing else touches them while the library may; it hands out
// slices of them between calls. Lists that an optimizer has taken in are reached through it, as `&TensorList` and
// `TensorListMut`: a plain `&mut TensorList` could be swapped for another, whose buffers would go too early.
use crate::error::text;
use crate::in_use::{Entered, InUse};
use crate::tensor::{elements, elements_mut, require_bits, require_dtype};
use crate::{Context, DType, Diagnosis, Element, Error, Result, Status, Tensor, TensorRef};
use gradscaler_sys as sys;
use std::cell::Cell;
use std::ffi::{c_void, CString};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::raw::c_char;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

/// Buffers, validated once and used in every step. It holds them, borrowed or owned, for as long as it lives:
///
/// ```
/// use gradscaler::{Context, Tensor, TensorList};
///
/// let context = Context::cpu()?;
/// let mut weights = vec![0.5f32; 4];
/// let mut list = TensorList::new(&context, [Tensor::from(&mut weights).named("weight")])?;
/// list.get_mut::<f32>(0)?[3] = 1.0;
/// assert_eq!(list.get::<f32>(0)?, [0.5, 0.5, 0.5, 1.0]);
/// drop(list);
/// assert_eq!(weights[3], 1.0);
/// # Ok::<(), gradscaler::Error>(())
/// ```
///
/// Until then they cannot be used otherwise:
///
/// ```compile_fail,E0502
/// # use gradscaler::{Context, TensorList};
/// # let context = Context::cpu()?;
/// let mut weights = vec![0.5f32; 4];
/// let list = TensorList::new(&context, [&mut weights])?;
/// println!("{}", weights[0]); // borrowed by the list
/// drop(list);
/// # Ok::<(), gradscaler::Error>(())
/// ```
///
/// nor go before the list does:
///
/// ```compile_fail,E0597
/// # use gradscaler::{Context, TensorList};
/// # let context = Context::cpu()?;
/// let list = {
///     let mut weights = vec![0.5f32; 4];
///     TensorList::new(&context, [&mut weights])?
/// };
/// println!("{}", list.len());
/// # Ok::<(), gradscaler::Error>(())
/// ```
///
/// A list may move to another thread; two threads cannot use it at once:
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<gradscaler::TensorList>();
/// ```
pub struct TensorList<'a> {
    // In this order: the handle goes before the buffers, the context last.
    handle: NonNull<sys::gsc_tensor_list>,
    tensors: Vec<Tensor<'a>>,
    pub(crate) in_use: Arc<InUse>,
    context: Context,
    not_sync: PhantomData<Cell<()>>,
}

// The header: one object from one thread at a time, destroyed on any.
unsafe impl Send for TensorList<'_> {}

impl Drop for TensorList<'_> {
    fn drop(&mut self) {
        unsafe { (self.context.api().tensor_list_destroy)(self.handle.as_ptr()) };
    }
}

impl fmt::Debug for TensorList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TensorList").field(&self.tensors).finish()
    }
}

/// Exponent of the first bin of a [`Diagnosis`]. Smaller exponents count in it, larger ones in the last.
pub const EXPONENT_MIN: i32 = sys::GSC_EXPONENT_MIN;

/// Refuses host memory on a GPU. An address the library judges itself.
pub(crate) fn require_place(context: &Context, is_host: bool, what: fmt::Arguments<'_>) -> Result<()> {
    if is_host && context.require_cpu("").is_err() {
        let message = format!("{what} is host memory, but the context is a GPU: use from_raw_parts");
        return Err(Error::new(Status::InvalidArgument, message));
    }
    Ok(())
}

impl<'a> TensorList<'a> {
    /// Validates the tensors and plans the passes over them. Errors: `InvalidArgument` naming `tensors[i]`: memory of
    /// another device, two tensors that overlap, an address that is NULL or not aligned, a name with a zero byte.
    pub fn new<T: Into<Tensor<'a>>>(context: &Context, tensors: impl IntoIterator<Item = T>) -> Result<Self> {
        let tensors: Vec<Tensor<'a>> = tensors.into_iter().map(Into::into).collect();
        let mut names = Vec::with_capacity(tensors.len());
        for (i, tensor) in tensors.iter().enumerate() {
            require_place(context, tensor.is_host(), format_args!("tensors[{i}]"))?;
            let name =
                tensor.name().map(CString::new).transpose().map_err(|_| {
                    Error::new(Status::InvalidArgument, format!("tensors[{i}]: the name has a zero byte"))
                })?;
            names.push(name);
        }
        let names: Vec<*const c_char> =
            names.iter().map(|name| name.as_ref().map_or(ptr::null(), |name| name.as_ptr())).collect();
        let raw: Vec<_> = tensors.iter().map(|tensor| *tensor.raw()).collect();
        let mut handle = ptr::null_mut();
        call!(context.tensor_list_create(raw.as_ptr(), raw.len() as i64, names.as_ptr(), &mut handle))?;
        Ok(TensorList {
            handle: NonNull::new(handle).expect("a list"),
            tensors,
            in_use: Arc::default(),
            context: context.clone(),
            not_sync: PhantomData,
        })
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Dtype, length and name of tensor `index`, and its elements unless it was made of an address.
    pub fn tensor(&self, index: usize) -> Result<&Tensor<'a>> {
        self.tensors.get(index).ok_or_else(|| {
            let message = format!("index is {}, but the list has {} tensors", index, self.len());
            Error::new(Status::InvalidArgument, message)
        })
    }

    /// The elements of tensor `index`. Errors: `InvalidArgument` if there is no such tensor or its elements are of
    /// another type; `Unsupported` on a GPU.
    pub fn get<T: Element>(&self, index: usize) -> Result<&[T]> {
        let tensor = self.host_tensor(index)?;
        require_dtype(tensor.dtype(), T::DTYPE)?;
        Ok(unsafe { elements(tensor.raw()) })
    }

    /// As [`TensorList::get`], to write.
    pub fn get_mut<T: Element>(&mut self, index: usize) -> Result<&mut [T]> {
        let tensor = self.host_tensor(index)?;
        require_dtype(tensor.dtype(), T::DTYPE)?;
        Ok(unsafe { elements_mut(tensor.raw()) })
    }

    /// The 16-bit elements of tensor `index` as they are stored. Errors as for [`TensorList::get`].
    pub fn bits(&self, index: usize) -> Result<&[u16]> {
        let tensor = self.host_tensor(index)?;
        require_bits(tensor.dtype())?;
        Ok(unsafe { elements(tensor.raw()) })
    }

    /// As [`TensorList::bits`], to write.
    pub fn bits_mut(&mut self, index: usize) -> Result<&mut [u16]> {
        let tensor = self.host_tensor(index)?;
        require_bits(tensor.dtype())?;
        Ok(unsafe { elements_mut(tensor.raw()) })
    }

    /// All tensors, to write several at once.
    pub fn tensors_mut(&mut self) -> Vec<Tensor<'_>> {
        self.tensors.iter_mut().map(|tensor| tensor.slice(..)).collect()
    }

    /// Replaces the buffers by others of the same lengths and dtypes; names stay. For memory that is reallocated in
    /// every step. On error the list keeps its old ones. Errors: `InvalidArgument` naming the index; `BadState` if the
    /// list was checked or unscaled since the last update.
    pub fn set_tensors<T: Into<Tensor<'a>>>(&mut self, tensors: impl IntoIterator<Item = T>) -> Result<()> {
        let tensors: Vec<Tensor<'a>> = tensors.into_iter().map(Into::into).collect();
        for (i, (new, old)) in tensors.iter().zip(&self.tensors).enumerate() {
            require_place(&self.context, new.is_host(), format_args!("tensors[{i}]"))?;
            if (new.len(), new.dtype()) != (old.len(), old.dtype()) {
                let message = format!("tensors[{i}] is {new:?}, but the list has {old:?}");
                return Err(Error::new(Status::InvalidArgument, message));
            }
        }
        let data: Vec<*mut c_void> = tensors.iter().map(|tensor| tensor.raw().data).collect();
        let entered = Entered::new(slice::from_ref(&self.in_use))?;
        call!(self.tensor_list_set_pointers(data.as_ptr(), data.len() as i64, self.context.stream()))?;
        drop(entered);
        for (old, new) in self.tensors.iter_mut().zip(tensors) {
            old.replace_memory(new);
        }
        Ok(())
    }

    /// Sets which tensors of a list of gradients take part from now on, one `bool` for each. An absent one counts as
    /// empty: it is neither read nor written, and its parameter, state and step count stay as they are. Errors:
    /// `BadState` if the list was checked or unscaled since the last update, or has no gradients.
    pub fn set_present(&mut self, present: &[bool]) -> Result<()> {
        let mask: Vec<u8> = present.iter().map(|&present| present.into()).collect();
        let _entered = Entered::new(slice::from_ref(&self.in_use))?;
        call!(self.tensor_list_set_present(mask.as_ptr(), ptr::null(), mask.len() as i64, self.context.stream()))
    }

    /// Multiplies the gradients of the list by a number in device memory too: a scaler's check, clipping and step, and
    /// steps without a scaler, see gradients times inverse scale times factor. It is read at the first check of an
    /// iteration. NULL: no factor. Errors: `BadState` if the list was checked or unscaled since the last update.
    ///
    /// # Safety
    /// The number is in memory of the context's device, outlives its use here, and is not written while a check or a
    /// step reads it.
    pub unsafe fn set_device_factor(&mut self, device_factor: *const f32) -> Result<()> {
        let _entered = Entered::new(slice::from_ref(&self.in_use))?;
        call!(self.tensor_list_set_device_factor(device_factor))
    }

    /// Keeps the L2 norm of every gradient of the list: each check of a scaler writes [`TensorList::len`] numbers, of the
    /// unscaled gradients before clipping, from the sums that it makes anyway; NaN or inf for a tensor with a NaN or inf, 0
    /// for an absent one. NULL: not kept. Errors: `BadState` if the list was checked or unscaled since the last update.
    ///
    /// # Safety
    /// The numbers are in memory of the context's device, which outlives its use here and is not accessed while a check
    /// writes it.
    pub unsafe fn set_device_norms(&mut self, device_norms: *mut f64) -> Result<()> {
        let _entered = Entered::new(slice::from_ref(&self.in_use))?;
        call!(self.tensor_list_set_device_norms(device_norms, self.len() as i64))
    }

    /// Describes the values of every tensor.
    pub fn diagnose(&self) -> Result<Vec<Diagnosis>> {
        const BINS: usize = sys::GSC_EXPONENT_BINS as usize;
        let mut found: Vec<sys::gsc_tensor_diagnosis> = Vec::with_capacity(self.len());
        let mut bins = vec![0i64; self.len() * BINS];
        let (count, stream) = (self.len() as i64, self.context.stream());
        call!(self.tensor_list_diagnose_sync(found.as_mut_ptr(), bins.as_mut_ptr(), count, stream))?;
        // Every entry has been written.
        unsafe { found.set_len(self.len()) };
        let each = found.iter().zip(bins.chunks(BINS));
        Ok(each.map(|(raw, bins)| Diagnosis { histogram: bins.to_vec(), ..raw.into() }).collect())
    }

    /// The context it was made with.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The handle, for calls through `gradscaler-sys`. Valid as long as the list.
    pub fn as_ptr(&self) -> *mut sys::gsc_tensor_list {
        self.handle.as_ptr()
    }

    fn judge(&self, status: sys::gsc_status) -> Result<()> {
        self.context.judge(status)
    }

    fn host_tensor(&self, index: usize) -> Result<&Tensor<'a>> {
        self.context.require_cpu("a slice of a list")?;
        self.tensor(index)
    }
}

/// A list that an optimizer has: everything but moving it.
pub struct TensorListMut<'o, 'a> {
    list: &'o mut TensorList<'a>,
}

impl fmt::Debug for TensorListMut<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.fmt(f)
    }
}

impl<'a> Deref for TensorListMut<'_, 'a> {
    type Target = TensorList<'a>;

    fn deref(&self) -> &TensorList<'a> {
        self.list
    }
}

impl<'o, 'a> TensorListMut<'o, 'a> {
    pub(crate) fn new(list: &'o mut TensorList<'a>) -> Self {
        TensorListMut { list }
    }

    /// [`TensorList::get_mut`], for as long as the optimizer is borrowed.
    pub fn into_mut<T: Element>(self, index: usize) -> Result<&'o mut [T]> {
        self.list.get_mut(index)
    }

    /// [`TensorList::get_mut`].
    pub fn get_mut<T: Element>(&mut self, index: usize) -> Result<&mut [T]> {
        self.list.get_mut(index)
    }

    /// [`TensorList::bits_mut`].
    pub fn bits_mut(&mut self, index: usize) -> Result<&mut [u16]> {
        self.list.bits_mut(index)
    }

    /// [`TensorList::tensors_mut`].
    pub fn tensors_mut(&mut self) -> Vec<Tensor<'_>> {
        self.list.tensors_mut()
    }

    /// [`TensorList::set_tensors`].
    pub fn set_tensors<T: Into<Tensor<'a>>>(&mut self, tensors: impl IntoIterator<Item = T>) -> Result<()> {
        self.list.set_tensors(tensors)
    }

    /// [`TensorList::set_device_factor`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn set_device_factor(&mut self, device_factor: *const f32) -> Result<()> {
        unsafe { self.list.set_device_factor(device_factor) }
    }

    /// [`TensorList::set_device_norms`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn set_device_norms(&mut self, device_norms: *mut f64) -> Result<()> {
        unsafe { self.list.set_device_norms(device_norms) }
    }

    /// [`TensorList::set_present`].
    pub fn set_present(&mut self, present: &[bool]) -> Result<()> {
        self.list.set_present(present)
    }
}

/// The memory of a state slot: its tensors, as the library has them.
#[derive(Debug)]
pub struct State<'o> {
    pub(crate) context: &'o Context,
    pub(crate) list: *mut sys::gsc_tensor_list,
    pub(crate) name: *const c_char,
}

impl State<'_> {
    /// The name of the slot, such as "exp_avg".
    pub fn name(&self) -> String {
        text(self.name)
    }

    /// Number of tensors: one for each parameter.
    pub fn len(&self) -> Result<usize> {
        let mut count = 0;
        let call = self.context.api().tensor_list_get_count;
        self.context.judge(unsafe { call(self.list, &mut count) })?;
        Ok(count as usize)
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The dtype of tensor `index`: fp32, or fp64 for parameters in fp64.
    pub fn dtype(&self, index: usize) -> Result<DType> {
        self.tensor(index).map(|(dtype, _)| dtype)
    }

    /// The elements of tensor `index`. Errors as for [`TensorList::get`].
    pub fn get<T: Element>(&self, index: usize) -> Result<&[T]> {
        let (dtype, tensor) = self.tensor(index)?;
        self.context.require_cpu("a slice of an optimizer's state")?;
        require_dtype(dtype, T::DTYPE)?;
        Ok(unsafe { elements(&tensor) })
    }

    fn tensor(&self, index: usize) -> Result<(DType, sys::gsc_tensor)> {
        let mut tensor = *TensorRef::from(&[0f32; 0]).raw();
        let call = self.context.api().tensor_list_get_tensor;
        self.context.judge(unsafe { call(self.list, index as i64, &mut tensor) })?;
        let dtype = DType::try_from(tensor.dtype)
            .map_err(|code| Error::new(Status::Internal, format!("the dtype {code} is unknown to this crate")))?;
        Ok((dtype, tensor))
    }
}

/// The memory of a state slot, to write.
#[derive(Debug)]
pub struct StateMut<'o>(pub(crate) State<'o>);

impl<'o> Deref for StateMut<'o> {
    type Target = State<'o>;

    fn deref(&self) -> &State<'o> {
        &self.0
    }
}

impl StateMut<'_> {
    /// As [`State::get`], to write.
    pub fn get_mut<T: Element>(&mut self, index: usize) -> Result<&mut [T]> {
        let (dtype, tensor) = self.0.tensor(index)?;
        self.0.context.require_cpu("a slice of an optimizer's state")?;
        require_dtype(dtype, T::DTYPE)?;
        Ok(unsafe { elements_mut(&tensor) })
    }
}
