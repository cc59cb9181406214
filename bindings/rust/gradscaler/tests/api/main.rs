// SPDX-License-Identifier: Apache-2.0
// Tests of what the crate adds to the library: ownership of buffers, threads, callbacks, panics and errors. The library
// itself is tested in C.
mod callbacks;
mod calls;
mod library;
mod memory;
mod state;
mod threads;
#[cfg(feature = "half")]
mod with_half;

use gradscaler::Status::{BadState, Callback, InvalidArgument, ScaleFloor, Spikes, Unavailable, Unsupported};
use gradscaler::{
    ops, Context, ContextOptions, DType, Error, FloorAction, GradScaler, Lists, LogLevel, Norm, Optimizer,
    OptimizerOptions, Preset, Result, ScalerOptions, ScalerState, SpikeAction, StateFormat, Status, Steps, Tensor,
    TensorList, TensorRef, VulkanDevice,
};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

const COUNT: usize = 1 << 20;

fn list(context: &Context, count: usize) -> TensorList<'static> {
    TensorList::new(context, [vec![0f32; count]]).unwrap()
}

fn sgd(context: &Context, count: usize) -> Optimizer<'static> {
    let lists = (list(context, count), list(context, count));
    Optimizer::new(OptimizerOptions::sgd().lr(1.0), lists).unwrap()
}

fn scaler(context: &Context) -> GradScaler {
    GradScaler::new(context, ScalerOptions::default().init_scale(1024.0)).unwrap()
}

fn fill(optimizer: &mut Optimizer<'_>, value: f32) {
    optimizer.grads_mut().get_mut::<f32>(0).unwrap().fill(value);
}

fn refused<T>(result: Result<T>, status: Status, says: &str) -> Error {
    let error = result.err().unwrap_or_else(|| panic!("not refused: {says}"));
    assert_eq!(error.status(), status, "{error}");
    assert!(error.message().contains(says), "{error}");
    error
}
