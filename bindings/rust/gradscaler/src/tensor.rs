// SPDX-License-Identifier: Apache-2.0
// Buffers: memory of the caller's, borrowed or handed over, as contiguous elements of one dtype. What is made of
// buffers, a list, is in tensor_list.rs.
use crate::{DType, Error, Result, Status};
use gradscaler_sys as sys;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ops::{Bound, RangeBounds};
use std::ptr;
use std::slice;

mod sealed {
    pub trait Sealed {}
}

/// Types that can be elements: `f32`, `f64` and, with the feature `half`, `half::f16` and `half::bf16`. 16-bit elements
/// can also be `u16`, by [`Tensor::fp16`] and [`Tensor::bf16`].
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The dtype of the type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ty: $dtype:ident),*) => {
        $(
            impl sealed::Sealed for $type {}
            impl Element for $type {
                const DTYPE: DType = DType::$dtype;
            }
        )*
    };
}
elements!(f32: Fp32, f64: Fp64);
#[cfg(feature = "half")]
elements!(half::f16: Fp16, half::bf16: Bf16);

fn raw(data: *mut c_void, count: usize, dtype: DType) -> sys::gsc_tensor {
    sys::gsc_tensor {
        data,
        count: count as i64,
        dtype: dtype as i32,
        scale_dtype: 0,
        scale: ptr::null(),
        scale_block_rows: 0,
        scale_block_columns: 0,
        columns: 0,
        reserved: [0; 2],
    }
}

/// 16-bit elements as they are stored.
#[derive(Debug)]
pub enum Bits<'a> {
    /// Memory that stays the caller's.
    Borrowed(&'a mut [u16]),
    /// Memory that is handed over.
    Owned(Vec<u16>),
}

impl<'a> From<&'a mut [u16]> for Bits<'a> {
    fn from(bits: &'a mut [u16]) -> Self {
        Bits::Borrowed(bits)
    }
}

impl<'a> From<&'a mut Vec<u16>> for Bits<'a> {
    fn from(bits: &'a mut Vec<u16>) -> Self {
        Bits::Borrowed(bits)
    }
}

impl From<Vec<u16>> for Bits<'static> {
    fn from(bits: Vec<u16>) -> Self {
        Bits::Owned(bits)
    }
}

/// The memory of a `Vec` that was handed over.
struct Owner {
    capacity: usize,
    release: unsafe fn(*mut c_void, usize),
}

unsafe fn release<T>(data: *mut c_void, capacity: usize) {
    drop(Vec::<T>::from_raw_parts(data.cast(), 0, capacity));
}

/// A contiguous buffer that the library may read and write: `&mut [T]`, a `Vec<T>` that is handed over, or an address.
///
/// ```
/// use gradscaler::{DType, Tensor};
///
/// let mut weights = vec![1.0f32; 3];
/// let borrowed = Tensor::from(&mut weights).named("layer1.weight");
/// assert_eq!((borrowed.len(), borrowed.dtype()), (3, DType::Fp32));
/// let owned = Tensor::bf16(vec![0u16; 3]); // bits of bfloat16
/// assert_eq!(owned.as_bits()?, [0; 3]);
/// # Ok::<(), gradscaler::Error>(())
/// ```
pub struct Tensor<'a> {
    raw: sys::gsc_tensor,
    dtype: DType,
    name: Option<String>,
    owner: Option<Owner>,
    /// Whether the memory is known to be the host's: not of an address.
    host: bool,
    marker: PhantomData<&'a mut [u8]>,
}

// It stands for `&mut [T]` or a `Vec<T>` of plain numbers.
unsafe impl Send for Tensor<'_> {}
unsafe impl Sync for Tensor<'_> {}

impl Drop for Tensor<'_> {
    fn drop(&mut self) {
        if let Some(owner) = &self.owner {
            unsafe { (owner.release)(self.raw.data, owner.capacity) };
        }
    }
}

/// Made of borrowed memory, which may be `mut`.
macro_rules! from_borrowed {
    ($tensor:ident::$make:ident(& $($mutable:tt)?)) => {
        from_borrowed!($tensor::$make(&'a $($mutable)? [T]));
        from_borrowed!($tensor::$make(&'a $($mutable)? Vec<T>));
        from_borrowed!($tensor::$make(&'a $($mutable)? [T; N]), const N: usize);
    };
    ($tensor:ident::$make:ident($memory:ty) $(, $($size:tt)*)?) => {
        impl<'a, T: Element $(, $($size)*)?> From<$memory> for $tensor<'a> {
            fn from(data: $memory) -> Self {
                $tensor::$make(data, T::DTYPE)
            }
        }
    };
}
from_borrowed!(Tensor::borrowed(&mut));
from_borrowed!(TensorRef::of(&));

impl<T: Element> From<Vec<T>> for Tensor<'_> {
    fn from(data: Vec<T>) -> Self {
        Tensor::owned(data, T::DTYPE)
    }
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("dtype", &self.dtype)
            .field("len", &self.len())
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl<'a> Tensor<'a> {
    fn new(data: *mut c_void, count: usize, dtype: DType, owner: Option<Owner>, host: bool) -> Self {
        Tensor { raw: raw(data, count, dtype), dtype, name: None, owner, host, marker: PhantomData }
    }

    fn borrowed<T>(data: &'a mut [T], dtype: DType) -> Self {
        Tensor::new(data.as_mut_ptr().cast(), data.len(), dtype, None, true)
    }

    fn owned<T>(data: Vec<T>, dtype: DType) -> Self {
        let mut data = ManuallyDrop::new(data);
        let owner = Owner { capacity: data.capacity(), release: release::<T> };
        Tensor::new(data.as_mut_ptr().cast(), data.len(), dtype, Some(owner), true)
    }

    fn of_bits(bits: Bits<'a>, dtype: DType) -> Self {
        match bits {
            Bits::Borrowed(data) => Tensor::borrowed(data, dtype),
            Bits::Owned(data) => Tensor::owned(data, dtype),
        }
    }

    /// IEEE binary16, stored in `u16`.
    pub fn fp16(bits: impl Into<Bits<'a>>) -> Self {
        Tensor::of_bits(bits.into(), DType::Fp16)
    }

    /// bfloat16, stored in `u16`.
    pub fn bf16(bits: impl Into<Bits<'a>>) -> Self {
        Tensor::of_bits(bits.into(), DType::Bf16)
    }

    /// `count` elements at an address: the way in for memory of a CUDA device, for a `VkDeviceAddress`, and for memory
    /// that something else owns.
    ///
    /// # Safety
    /// The memory is that of the device of every context the tensor is used with. For `'a`, and until work on it that
    /// has been enqueued or recorded has finished, it is valid and nothing else writes it; nothing else reads it
    /// while a call, or work that a call has enqueued, may write it.
    pub unsafe fn from_raw_parts(data: *mut c_void, count: usize, dtype: DType) -> Self {
        Tensor::new(data, count, dtype, None, false)
    }

    /// Gives it a name for messages and reports.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The dtype of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.raw.count as usize
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.raw.count == 0
    }

    /// The elements. Errors: `InvalidArgument` if they are of another type; `Unsupported` for a tensor made of an
    /// address, whose memory may not be the host's.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.require_host()?;
        require_dtype(self.dtype, T::DTYPE)?;
        Ok(unsafe { elements(&self.raw) })
    }

    /// As [`Tensor::as_slice`], to write.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        self.require_host()?;
        require_dtype(self.dtype, T::DTYPE)?;
        Ok(unsafe { elements_mut(&self.raw) })
    }

    /// 16-bit elements as they are stored. Errors as for [`Tensor::as_slice`].
    pub fn as_bits(&self) -> Result<&[u16]> {
        self.require_host()?;
        require_bits(self.dtype)?;
        Ok(unsafe { elements(&self.raw) })
    }

    /// As [`Tensor::as_bits`], to write.
    pub fn as_mut_bits(&mut self) -> Result<&mut [u16]> {
        self.require_host()?;
        require_bits(self.dtype)?;
        Ok(unsafe { elements_mut(&self.raw) })
    }

    /// A part of it, for the length of a borrow; `..` is all of it.
    ///
    /// # Panics
    /// If the range does not lie within the tensor, as a slice does.
    pub fn slice(&mut self, range: impl RangeBounds<usize>) -> Tensor<'_> {
        let after = |bound: usize| bound.checked_add(1).expect("a bound of the range is usize::MAX");
        let first = match range.start_bound() {
            Bound::Included(&first) => first,
            Bound::Excluded(&before) => after(before),
            Bound::Unbounded => 0,
        };
        let last = match range.end_bound() {
            Bound::Included(&last) => after(last),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len(),
        };
        assert!(first <= last && last <= self.len(), "range {}..{} of {} elements", first, last, self.len());
        let data = self.raw.data.cast::<u8>().wrapping_add(first * self.dtype.bytes());
        Tensor::new(data.cast(), last - first, self.dtype, None, self.host)
    }

    pub(crate) fn raw(&self) -> &sys::gsc_tensor {
        &self.raw
    }

    pub(crate) fn is_host(&self) -> bool {
        self.host
    }

    /// Takes over the memory of a tensor that has the same number of elements and dtype; the name stays.
    pub(crate) fn replace_memory(&mut self, mut other: Tensor<'a>) {
        mem::swap(&mut self.raw, &mut other.raw);
        mem::swap(&mut self.owner, &mut other.owner);
        mem::swap(&mut self.host, &mut other.host);
    }

    fn require_host(&self) -> Result<()> {
        if self.host {
            return Ok(());
        }
        let message = "the tensor was made of an address: only a list of a CPU context knows that it is the host's";
        Err(Error::new(Status::Unsupported, message))
    }
}

pub(crate) fn require_dtype(has: DType, wanted: DType) -> Result<()> {
    if has == wanted {
        return Ok(());
    }
    Err(Error::new(Status::InvalidArgument, format!("the tensor is {has:?}, not {wanted:?}")))
}

pub(crate) fn require_bits(has: DType) -> Result<()> {
    if has.bytes() == 2 {
        return Ok(());
    }
    Err(Error::new(Status::InvalidArgument, format!("the tensor is {has:?}, not of 16 bits")))
}

/// # Safety
/// The memory is the host's, holds elements of the type, and is not written during `'a`.
pub(crate) unsafe fn elements<'a, T>(tensor: &sys::gsc_tensor) -> &'a [T] {
    match tensor.count {
        0 => &[],
        count => slice::from_raw_parts(tensor.data.cast(), count as usize),
    }
}

/// # Safety
/// The memory is the host's, holds elements of the type, and is used by nothing else during `'a`.
pub(crate) unsafe fn elements_mut<'a, T>(tensor: &sys::gsc_tensor) -> &'a mut [T] {
    match tensor.count {
        0 => &mut [],
        count => slice::from_raw_parts_mut(tensor.data.cast(), count as usize),
    }
}

/// A contiguous buffer that the library reads only.
#[derive(Clone, Copy)]
pub struct TensorRef<'a> {
    raw: sys::gsc_tensor,
    host: bool,
    marker: PhantomData<&'a [u8]>,
}

// It stands for `&[T]` of plain numbers.
unsafe impl Send for TensorRef<'_> {}
unsafe impl Sync for TensorRef<'_> {}

impl fmt::Debug for TensorRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorRef").field("len", &self.raw.count).finish_non_exhaustive()
    }
}

impl<'a> From<&'a Tensor<'_>> for TensorRef<'a> {
    fn from(tensor: &'a Tensor<'_>) -> Self {
        TensorRef { raw: tensor.raw, host: tensor.is_host(), marker: PhantomData }
    }
}

impl<'a> TensorRef<'a> {
    fn of<T>(data: &'a [T], dtype: DType) -> Self {
        let data_pointer = data.as_ptr() as *mut c_void;
        TensorRef { raw: raw(data_pointer, data.len(), dtype), host: true, marker: PhantomData }
    }

    /// IEEE binary16, stored in `u16`.
    pub fn fp16(bits: &'a [u16]) -> Self {
        TensorRef::of(bits, DType::Fp16)
    }

    /// bfloat16, stored in `u16`.
    pub fn bf16(bits: &'a [u16]) -> Self {
        TensorRef::of(bits, DType::Bf16)
    }

    /// `count` elements at an address.
    ///
    /// # Safety
    /// As [`Tensor::from_raw_parts`], but for reading: nothing writes the memory.
    pub unsafe fn from_raw_parts(data: *const c_void, count: usize, dtype: DType) -> Self {
        TensorRef { raw: raw(data as *mut c_void, count, dtype), host: false, marker: PhantomData }
    }

    pub(crate) fn raw(&self) -> &sys::gsc_tensor {
        &self.raw
    }

    pub(crate) fn is_host(&self) -> bool {
        self.host
    }
}
