// SPDX-License-Identifier: Apache-2.0
// The C functions that closures are handed to the library as. The library calls them on the thread whose call caused
// them, so a panic is put aside there and goes on when that call has returned: it must not unwind through C.
use crate::error::Cause;
use crate::{LogLevel, Result};
use gradscaler_sys as sys;
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_void, CStr};
use std::mem;
use std::os::raw::c_char;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

thread_local! {
    static PANIC: Cell<Option<Box<dyn Any + Send>>> = Cell::new(None);
}

fn shielded<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        PANIC.with(|kept| kept.set(Some(panic)));
        otherwise
    })
}

pub(crate) fn resume_panic() {
    if let Some(panic) = PANIC.with(Cell::take) {
        resume_unwind(panic);
    }
}

pub(crate) type Log = dyn Fn(LogLevel, &str) + Send + Sync;
/// `(count, body)`: call `body(i)` once for every `i` in `0..count`.
pub(crate) type ParallelFor = dyn Fn(i32, &(dyn Fn(i32) + Sync)) + Send + Sync;

/// The closures of a context. It stays at its address, which the library has.
#[derive(Default)]
pub(crate) struct Hooks {
    log: RwLock<Option<Arc<Log>>>,
    pub(crate) parallel_for: Option<Box<ParallelFor>>,
    pub(crate) queue: Option<Queue>,
}

impl Hooks {
    pub(crate) fn set_log(&self, log: Option<Arc<Log>>) {
        *self.log.write().unwrap_or_else(PoisonError::into_inner) = log;
    }

    fn log(&self) -> Option<Arc<Log>> {
        self.log.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// `user` is a `Hooks`.
pub(crate) unsafe extern "C" fn log(user: *mut c_void, level: i32, message: *const c_char) {
    shielded((), || {
        let hooks = &*user.cast::<Hooks>();
        // The lock is not held during the call, which may set another log.
        if let (Some(log), Ok(level)) = (hooks.log(), LogLevel::try_from(level)) {
            log(level, &CStr::from_ptr(message).to_string_lossy());
        }
    });
}

/// `user` is a `Hooks`. Tasks that a closure leaves out or repeats, the library finds out.
pub(crate) unsafe extern "C" fn parallel_for(
    user: *mut c_void,
    count: i32,
    body: sys::gsc_task_fn,
    argument: *mut c_void,
) {
    struct Argument(*mut c_void);
    // The library's side of a task is made for any thread.
    unsafe impl Sync for Argument {}
    impl Argument {
        fn get(&self) -> *mut c_void {
            self.0
        }
    }
    shielded((), || {
        let argument = Argument(argument);
        if let Some(run) = &(*user.cast::<Hooks>()).parallel_for {
            run(count, &|index| body(argument.get(), index));
        }
    });
}

/// The mutex of a queue, which one call locks and the next unlocks, on the same thread.
pub(crate) struct Queue {
    // Before its mutex. Only who has locked that touches it.
    guard: UnsafeCell<Option<MutexGuard<'static, ()>>>,
    mutex: Arc<Mutex<()>>,
}

unsafe impl Send for Queue {}
unsafe impl Sync for Queue {}

impl Queue {
    pub(crate) fn new(mutex: Arc<Mutex<()>>) -> Self {
        Queue { guard: UnsafeCell::new(None), mutex }
    }
}

/// `user` is a `Queue`.
pub(crate) unsafe extern "C" fn lock(user: *mut c_void) {
    shielded((), || {
        let queue = &*user.cast::<Queue>();
        let guard = queue.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        *queue.guard.get() = Some(mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(guard));
    });
}

/// `user` is a `Queue`.
pub(crate) unsafe extern "C" fn unlock(user: *mut c_void) {
    // Out of its cell before the mutex is unlocked.
    let guard = (*(*user.cast::<Queue>()).guard.get()).take();
    drop(guard);
}

type Reduce = dyn FnMut(&mut [f64]) -> std::result::Result<(), Cause> + Send;

/// The reducer of a scaler, at an address that the library has.
pub(crate) struct Reducer {
    reduce: Box<Reduce>,
    failure: Option<Cause>,
}

impl Reducer {
    pub(crate) fn new(reduce: Box<Reduce>) -> Box<Self> {
        Box::new(Reducer { reduce, failure: None })
    }
}

/// `user` is a `Reducer` that nothing else uses during the call; `values` is host memory.
pub(crate) unsafe extern "C" fn all_reduce(
    user: *mut c_void,
    values: *mut f64,
    count: i64,
    _stream: sys::gsc_stream,
) -> i32 {
    shielded(1, || {
        let reducer = &mut *user.cast::<Reducer>();
        match (reducer.reduce)(slice::from_raw_parts_mut(values, count as usize)) {
            Ok(()) => 0,
            Err(cause) => {
                reducer.failure = Some(cause);
                1
            }
        }
    })
}

/// Adds what the reducer said to the error of the call in which it did.
///
/// # Safety
/// `reducer` is NULL or a `Reducer` that nothing else uses.
pub(crate) unsafe fn explain<T>(result: Result<T>, reducer: *mut Reducer) -> Result<T> {
    result.map_err(|error| match reducer.as_mut().and_then(|reducer| reducer.failure.take()) {
        None => error,
        cause => error.with_source(cause),
    })
}
