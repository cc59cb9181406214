// SPDX-License-Identifier: Apache-2.0
// Buffers: borrowed, handed over, replaced, refused; and the fields of errors.
use super::*;
use std::ops::Bound;

#[test]
fn borrowed_buffers_are_written_and_given_back() -> Result<()> {
    let context = Context::cpu()?;
    let (mut weights, mut gradients) = ([1f32; 3], vec![4f64; 3]);
    let params = TensorList::new(&context, [&mut weights])?;
    let grads = TensorList::new(&context, [&mut gradients])?;
    let mut optimizer = Optimizer::new(OptimizerOptions::sgd().lr(0.25).zero_grads(true), (params, grads))?;
    optimizer.step()?;
    drop(optimizer);
    assert_eq!((weights, gradients), ([0.0; 3], vec![0.0; 3]));
    Ok(())
}

#[test]
fn vectors_are_kept_whatever_their_capacity_and_released() -> Result<()> {
    let context = Context::cpu()?;
    let mut roomy = Vec::with_capacity(100);
    roomy.extend([1f32, 2.0]);
    let list = TensorList::new(&context, [Tensor::from(roomy), Tensor::from(Vec::<f32>::new())])?;
    assert_eq!(list.get::<f32>(0)?, [1.0, 2.0]);
    assert_eq!(list.get::<f32>(1)?, [0f32; 0]);
    assert!(list.tensor(1)?.is_empty());
    Ok(())
}

#[test]
fn several_buffers_are_written_at_once() -> Result<()> {
    let context = Context::cpu()?;
    let (params, grads) = (list(&context, 2), TensorList::new(&context, [vec![0f32; 2]])?);
    let model_copy = Some(TensorList::new(&context, [Tensor::bf16(vec![0; 2])])?);
    let lists = Lists { params, grads, model_copy, state: vec![] };
    let mut optimizer = Optimizer::new(OptimizerOptions::sgd().lr(1.0), lists)?;
    let mut lists = optimizer.lists_mut();
    let copy = lists.model_copy.as_mut().unwrap().bits_mut(0)?;
    let (weights, gradients) = (lists.params.get_mut::<f32>(0)?, lists.grads.get_mut::<f32>(0)?);
    weights[0] = 3.0;
    gradients[0] = f32::from(copy[0]) + 1.0;
    optimizer.step()?;
    assert_eq!(optimizer.params().get::<f32>(0)?, [2.0, 0.0]);
    assert_eq!(optimizer.model_copy().unwrap().bits(0)?, [0x4000, 0]);
    Ok(())
}

#[test]
fn other_types_and_indices_are_refused() {
    let context = Context::cpu().unwrap();
    let mut list = TensorList::new(&context, [Tensor::fp16(vec![0; 2])]).unwrap();
    refused(list.get::<f32>(0), InvalidArgument, "Fp16, not Fp32");
    refused(list.get_mut::<f64>(0), InvalidArgument, "Fp16, not Fp64");
    refused(list.bits_mut(1), InvalidArgument, "index is 1, but the list has 1 tensors");
    let floats = super::list(&context, 2);
    refused(floats.bits(0), InvalidArgument, "Fp32, not of 16 bits");
}

#[test]
fn an_address_is_host_memory_in_a_list_of_the_cpu_only() {
    let context = Context::cpu().unwrap();
    let mut memory = [1f32, 2.0];
    let tensor = unsafe { Tensor::from_raw_parts(memory.as_mut_ptr().cast(), 2, DType::Fp32) };
    refused(tensor.as_slice::<f32>(), Unsupported, "address");
    let list = TensorList::new(&context, [tensor]).unwrap();
    assert_eq!(list.get::<f32>(0).unwrap(), [1.0, 2.0]);
    let null = unsafe { Tensor::from_raw_parts(std::ptr::null_mut(), 2, DType::Fp32) };
    refused(TensorList::new(&context, [null]), InvalidArgument, "tensors[0]");
}

#[test]
fn buffers_are_replaced_by_others_of_the_same_kind() -> Result<()> {
    let context = Context::cpu()?;
    let mut optimizer = sgd(&context, 2);
    optimizer.grads_mut().set_tensors([vec![5f32; 2]])?;
    optimizer.step()?;
    assert_eq!(optimizer.params().get::<f32>(0)?, [-5.0; 2]);
    let set = |optimizer: &mut Optimizer<'static>, tensor| optimizer.grads_mut().set_tensors([tensor]);
    refused(set(&mut optimizer, Tensor::from(vec![0f32; 3])), InvalidArgument, "tensors[0]");
    refused(set(&mut optimizer, Tensor::fp16(vec![0; 2])), InvalidArgument, "tensors[0]");
    let mut scaler = scaler(&context);
    scaler.check(&mut optimizer)?;
    refused(set(&mut optimizer, Tensor::from(vec![0f32; 2])), BadState, "update");
    assert_eq!(optimizer.grads().get::<f32>(0)?, [5.0; 2]);
    Ok(())
}

#[test]
fn errors_say_in_fields_what_they_are_about() {
    let context = Context::cpu().unwrap();
    let error = GradScaler::new(&context, ScalerOptions::default().init_scale(0.0)).unwrap_err();
    let place = error.place();
    assert_eq!((place.function.as_str(), place.argument.as_str()), ("gsc_scaler_create", "options"));
    assert_eq!((place.field.as_str(), place.index, place.tensor), ("init_scale", None, None));
    let lists = Lists {
        params: list(&context, 4),
        grads: list(&context, 4),
        model_copy: None,
        state: vec![list(&context, 4), list(&context, 3)],
    };
    let error = Optimizer::new(OptimizerOptions::adam(), lists).unwrap_err();
    let place = error.place();
    assert_eq!((place.argument.as_str(), place.index, place.tensor), ("state", Some(1), Some(0)));
}

#[test]
fn names_are_in_messages() {
    let context = Context::cpu().unwrap();
    let mut bits = vec![0u16; 3];
    let bytes = bits.as_mut_ptr().cast::<u8>().wrapping_add(1);
    let odd = unsafe { Tensor::from_raw_parts(bytes.cast(), 1, DType::Fp16) }.named("layer1.bias");
    refused(TensorList::new(&context, [odd]), InvalidArgument, "layer1.bias");
    let zero = Tensor::from(vec![0f32; 1]).named("a\0b");
    refused(TensorList::new(&context, [zero]), InvalidArgument, "tensors[0]: the name has a zero byte");
}

#[test]
#[should_panic(expected = "range 1..3 of 2 elements")]
fn a_slice_beyond_the_end_panics_as_slices_do() {
    Tensor::from(vec![0f32; 2]).slice(1..3);
}

#[test]
#[should_panic(expected = "a bound of the range is usize::MAX")]
fn a_slice_to_the_last_index_panics_as_slices_do() {
    Tensor::from(vec![0f32; 2]).slice(..=usize::MAX);
}

#[test]
#[should_panic(expected = "a bound of the range is usize::MAX")]
fn a_slice_after_the_last_index_panics_as_slices_do() {
    let from = (Bound::Excluded(usize::MAX), Bound::Unbounded);
    Tensor::from(vec![0f32; 2]).slice(from);
}
