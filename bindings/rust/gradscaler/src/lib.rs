// SPDX-License-Identifier: Apache-2.0
#![doc = include_str!("../README.md")]
#![warn(missing_docs, missing_debug_implementations)]

mod callbacks;
mod context;
mod enums;
mod error;
mod in_use;
mod library;
pub mod ops;
mod optimizer;
mod options;
mod report;
mod scaler;
mod tensor;
mod tensor_list;

pub use context::{Context, ContextOptions};
pub use enums::*;
pub use error::{Cause, Error, Place, Result};
#[cfg(not(feature = "link"))]
pub use library::load;
pub use library::{
    build_info, device_count, device_info, recommend_scale, version, DeviceInfo, Recommendation,
};
pub use optimizer::{Gradients, Lists, ListsMut, Optimizer, Steps};
pub use options::{OptimizerOptions, ScalerOptions};
pub use report::{DeviceState, HistoryEntry, Report, ScalerState};
pub use scaler::GradScaler;
pub use tensor::{Bits, Element, Tensor, TensorRef};
pub use tensor_list::{Diagnosis, State, StateMut, TensorList, TensorListMut, EXPONENT_MIN};
