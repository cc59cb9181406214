// SPDX-License-Identifier: Apache-2.0
#![doc = include_str!("../README.md")]
#![warn(missing_docs, missing_debug_implementations)]

// The first, since the others use its macros.
#[macro_use]
mod mirrors;

mod callbacks;
mod context;
mod error;
mod in_use;
mod library;
pub mod ops;
mod optimizer;
mod options;
mod scaler;
mod state;
mod tensor;
mod tensor_list;

pub use context::{Context, ContextOptions, VulkanDevice};
pub use error::{Cause, Error, Place, Result};
#[cfg(not(feature = "link"))]
pub use library::load;
pub use library::{build_info, device_count, device_info, recommend_scale, version, DeviceInfo, Recommendation};
pub use mirrors::*;
pub use optimizer::{Gradients, Lists, ListsMut, Optimizer, Steps};
pub use scaler::GradScaler;
pub use tensor::{Bits, Element, Tensor, TensorRef};
pub use tensor_list::{State, StateMut, TensorList, TensorListMut, EXPONENT_MIN};
