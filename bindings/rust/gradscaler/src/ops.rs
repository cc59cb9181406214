// SPDX-License-Identifier: Apache-2.0
//! Operations without a scaler, on host memory: for programs that keep the scaler's state themselves, and for
//! converting between dtypes. On a GPU their numbers are in device memory; there they are called through
//! `gradscaler-sys`, and fail here with `Unsupported`.
use crate::{Context, Norm, Result, Tensor, TensorRef};
use gradscaler_sys as sys;

/// `t[i] *= inv_scale` in place for all tensors; true if any element is inf or NaN before or after. PyTorch's
/// `_amp_foreach_non_finite_check_and_unscale_`.
pub fn unscale_check(context: &Context, tensors: &mut [Tensor<'_>], inv_scale: f32) -> Result<bool> {
    context.require_cpu("unscale_check")?;
    let tensors: Vec<_> = tensors.iter().map(|tensor| *tensor.raw()).collect();
    let mut found_inf = 0.0;
    let (data, count) = (tensors.as_ptr(), tensors.len() as i64);
    call!(context.ops_unscale_check(data, count, &mut found_inf, &inv_scale, context.stream()))?;
    Ok(found_inf != 0.0)
}

/// PyTorch's `_amp_update_scale_`: `found_inf` backs off; else the tracker counts and the scale may grow. Factors and
/// interval are validated as in [`ScalerOptions`](crate::ScalerOptions).
pub fn update_scale(
    context: &Context,
    scale: &mut f32,
    growth_tracker: &mut i32,
    found_inf: bool,
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: i32,
) -> Result<()> {
    context.require_cpu("update_scale")?;
    let found_inf = f32::from(u8::from(found_inf));
    call!(context.ops_update_scale(
        scale,
        growth_tracker,
        &found_inf,
        growth_factor,
        backoff_factor,
        growth_interval,
        context.stream()
    ))
}

/// `dst[i] = src[i] * factor`. Dtypes may differ; rounded to nearest even.
pub fn scale<'s, 'd>(
    context: &Context,
    src: impl Into<TensorRef<'s>>,
    dst: impl Into<Tensor<'d>>,
    factor: f32,
) -> Result<()> {
    context.require_cpu("scale")?;
    let (src, dst) = (src.into(), dst.into());
    call!(context.ops_scale(src.raw(), dst.raw(), 1, &factor, context.stream()))
}

/// `y[i] = a * x[i] + b * y[i]` in fp32 (fp64 if either is fp64): gradient accumulation. With `b` 0 `y` is only
/// written.
pub fn axpby<'x, 'y>(
    context: &Context,
    a: f64,
    x: impl Into<TensorRef<'x>>,
    b: f64,
    y: impl Into<Tensor<'y>>,
) -> Result<()> {
    context.require_cpu("axpby")?;
    let (x, y) = (x.into(), y.into());
    call!(context.ops_axpby(a, x.raw(), b, y.raw(), 1, context.stream()))
}

/// `dst[i] = src[i]`, converted to `dst`'s dtype, rounded to nearest even.
///
/// ```
/// use gradscaler::{ops, Context, Tensor};
///
/// let mut bits = vec![0u16; 2];
/// ops::cast(&Context::cpu()?, &[1.0f32, -2.0], Tensor::fp16(&mut bits))?;
/// assert_eq!(bits, [0x3c00, 0xc000]);
/// # Ok::<(), gradscaler::Error>(())
/// ```
pub fn cast<'s, 'd>(context: &Context, src: impl Into<TensorRef<'s>>, dst: impl Into<Tensor<'d>>) -> Result<()> {
    context.require_cpu("cast")?;
    let (src, dst) = (src.into(), dst.into());
    call!(context.ops_cast(src.raw(), dst.raw(), 1, context.stream()))
}

/// Converts optimizer state between its formats, rounded to nearest: `dst = src`. Both are fp32 or codes of one kind of
/// slot, or remainders. If one is fp32 and the other a remainder, the fp32 tensor has masters and `weights` their
/// 16-bit weights.
///
/// # Safety
/// The tensors and their scales are valid memory of the context's device, and `src` and `dst` do not overlap.
pub unsafe fn convert_state(
    context: &Context,
    src: &sys::gsc_tensor,
    weights: Option<&sys::gsc_tensor>,
    dst: &sys::gsc_tensor,
) -> Result<()> {
    let weights = weights.map_or(std::ptr::null(), |weights| weights as *const _);
    call!(context.ops_convert_state(src, weights, dst, 1, context.stream()))
}

/// The norm over all tensors. NaN and inf propagate.
pub fn norm(context: &Context, tensors: &[TensorRef<'_>], norm: Norm) -> Result<f64> {
    norms(context, tensors, norm, std::ptr::null_mut())
}

/// The norm over all tensors, and that of each.
pub fn tensor_norms(context: &Context, tensors: &[TensorRef<'_>], norm: Norm) -> Result<(f64, Vec<f64>)> {
    let mut each = vec![0.0; tensors.len()];
    let all = norms(context, tensors, norm, each.as_mut_ptr())?;
    Ok((all, each))
}

fn norms(context: &Context, tensors: &[TensorRef<'_>], norm: Norm, each: *mut f64) -> Result<f64> {
    context.require_cpu("norm")?;
    let tensors: Vec<_> = tensors.iter().map(|tensor| *tensor.raw()).collect();
    let mut all = 0.0;
    let (data, count) = (tensors.as_ptr(), tensors.len() as i64);
    call!(context.ops_norm(data, count, norm as i32, &mut all, each, context.stream()))?;
    Ok(all)
}
