// SPDX-License-Identifier: Apache-2.0
// Options, checkpoints, groups and reports: what goes in comes out.
use super::*;

#[test]
fn presets_and_defaults_are_the_librarys() -> Result<()> {
    assert_eq!(ScalerOptions::preset(Preset::Torch)?, ScalerOptions::default());
    let keras = ScalerOptions::preset(Preset::Keras)?;
    assert!(keras.no_finite_guard && keras.fp32_products);
    let scaler = GradScaler::new(&Context::cpu()?, keras)?;
    assert_eq!(scaler.options()?, keras);
    Ok(())
}

/// One of each type: the others are made by the same macro.
#[test]
fn options_of_a_scaler_arrive() -> Result<()> {
    let options = ScalerOptions::default()
        .init_scale(8.0)
        .growth_interval(3)
        .growth_factor(4.0)
        .growth_timing(gradscaler::GrowthTiming::OneLater)
        .grow_on_equal(true);
    let context = Context::cpu()?;
    assert_eq!(GradScaler::new(&context, options)?.options()?, options);
    let disabled = GradScaler::new(&context, ScalerOptions::default().enabled(false))?;
    assert_eq!(disabled.scale()?, 1.0);
    Ok(())
}

#[test]
fn options_of_an_optimizer_arrive() -> Result<()> {
    let context = Context::cpu()?;
    for options in [
        OptimizerOptions::adamw()
            .lr(0.5)
            .beta1(0.25)
            .amsgrad(true)
            .count_unchanged(true)
            .state_format(StateFormat::Bits8)
            .seed(7),
        OptimizerOptions::sgd().momentum(0.5).dampening(0.25).maximize(true),
        OptimizerOptions::rmsprop().alpha(0.5).eps_root(1e-3).centered(true),
        OptimizerOptions::lamb(),
    ] {
        let mut optimizer = Optimizer::new(options, (list(&context, 2), list(&context, 2)))?;
        let found = optimizer.options(0)?;
        // What was given is as it was; what was not has a default now, and can be given back.
        let (given, all) = (format!("{options:?}"), format!("{found:?}"));
        for field in given.trim_end_matches(" }").split(", ").filter(|field| !field.ends_with(": None")) {
            assert!(all.contains(field), "{field} in {all}");
        }
        assert!(!all.contains(": None"), "{all}");
        optimizer.set_options(0, &found)?;
        assert_eq!(optimizer.options(0)?, found);
    }
    assert_eq!(OptimizerOptions::default(), OptimizerOptions::adamw());
    Ok(())
}

#[test]
fn optimizers_are_saved_and_restored() -> Result<()> {
    let context = Context::cpu()?;
    let adam = || Optimizer::new(OptimizerOptions::adam(), (list(&context, 3), list(&context, 3))).unwrap();
    let (mut first, mut second) = (adam(), adam());
    fill(&mut first, 2.0);
    first.step()?;
    second.load(&first.save()?)?;
    assert_eq!(second.steps()?, Steps { applied: 1, skipped: 0 });
    assert_eq!(second.state_count()?, 2);
    let exp_avg = second.state(0)?;
    assert_eq!((exp_avg.name().as_str(), exp_avg.len()?), ("exp_avg", 1));
    assert_eq!(exp_avg.dtype(0)?, DType::Fp32);
    assert_eq!(exp_avg.get::<f32>(0)?, first.state(0)?.get::<f32>(0)?);
    assert!(exp_avg.get::<f32>(0)?[0] > 0.19);
    second.state_mut(0)?.get_mut::<f32>(0)?[1] = 7.0;
    assert_eq!(second.state(0)?.get::<f32>(0)?[1], 7.0);
    refused(second.load(&[0; 100]), InvalidArgument, "");
    Ok(())
}

#[test]
fn state_of_ones_own_is_used() -> Result<()> {
    let context = Context::cpu()?;
    let (params, grads) = (list(&context, 2), TensorList::new(&context, [vec![1f32; 2]])?);
    let state = vec![TensorList::new(&context, [vec![10f32; 2]])?];
    let lists = Lists { params, grads, model_copy: None, state };
    let mut optimizer = Optimizer::new(OptimizerOptions::sgd().lr(1.0).momentum(0.5), lists)?;
    optimizer.set_steps(Steps { applied: 1, skipped: 2 })?;
    optimizer.step()?;
    assert_eq!(optimizer.state(0)?.get::<f32>(0)?, [6.0; 2]);
    assert_eq!(optimizer.params().get::<f32>(0)?, [-6.0; 2]);
    assert_eq!(optimizer.steps()?, Steps { applied: 2, skipped: 2 });
    Ok(())
}

/// The averages of the iterates, between steps, and of the weights, in each step.
#[test]
fn weights_are_averaged() -> Result<()> {
    let context = Context::cpu()?;
    let one = || TensorList::new(&context, [vec![1f32; 1]]).unwrap();
    let options = OptimizerOptions::sgd_schedule_free().lr(1.0).momentum(0.5).weight_lr_power(0.0).ema_decay(0.5);
    let mut optimizer = Optimizer::new(options, (one(), one()))?;
    optimizer.step()?;
    optimizer.step()?;
    assert_eq!(optimizer.params().get::<f32>(0)?, [-0.75]);
    let ema = optimizer.state(2)?;
    assert_eq!(ema.name().as_str(), "ema");
    assert_eq!(ema.get::<f32>(0)?, [-0.375]); // of 0 and -0.75
    optimizer.set_evaluating(true)?;
    assert_eq!(optimizer.evaluating()?, 1);
    assert_eq!(optimizer.params().get::<f32>(0)?, [-0.5]); // the mean of 0 and -1
    refused(optimizer.step(), BadState, "optimizer");
    optimizer.set_evaluating(false)?;
    assert_eq!(optimizer.params().get::<f32>(0)?, [-0.75]);
    Ok(())
}

fn of_two_tensors() -> Optimizer<'static> {
    let context = Context::cpu().unwrap();
    let two = || TensorList::new(&context, [vec![1f32; 1], vec![1f32; 1]]).unwrap();
    Optimizer::new(OptimizerOptions::sgd().lr(1.0), (two(), two())).unwrap()
}

#[test]
fn absent_tensors_keep_their_parameters_and_counts() -> Result<()> {
    let mut optimizer = of_two_tensors();
    optimizer.grads_mut().set_present(&[true, false])?;
    optimizer.step()?;
    assert_eq!(optimizer.params().get::<f32>(0)?, [0.0]);
    assert_eq!(optimizer.params().get::<f32>(1)?, [1.0]);
    assert_eq!(optimizer.tensor_steps()?, [1, 0]);
    assert!(optimizer.grads_mut().set_present(&[true]).is_err());
    optimizer.set_offsets(&[64, 32])?;
    assert!(optimizer.set_offsets(&[64, 33]).is_err());
    assert!(optimizer.set_offsets(&[64]).is_err());
    optimizer.set_tensor_steps(&[3, 9])?;
    assert_eq!(optimizer.tensor_steps()?, [3, 9]);
    assert_eq!(optimizer.steps()?.applied, 9);
    assert_eq!(optimizer.unchanged()?, 0);
    Ok(())
}

#[test]
fn groups_have_hyper_parameters_of_their_own() -> Result<()> {
    let mut optimizer = of_two_tensors();
    let group = optimizer.add_group(1..2, &OptimizerOptions::sgd().lr(0.5))?;
    assert_eq!((group, optimizer.group_count()?), (1, 2));
    optimizer.set_lr(0, 0.25)?;
    optimizer.step_scaled(0.5, false)?;
    optimizer.step_scaled(0.5, true)?;
    let weights = |i| optimizer.params().get::<f32>(i).unwrap()[0];
    assert_eq!((weights(0), weights(1)), (0.875, 0.75));
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = optimizer.add_group(2..1, &OptimizerOptions::sgd());
    refused(reversed, InvalidArgument, "count");
    Ok(())
}

#[test]
fn a_scalers_state_is_the_librarys_struct() -> Result<()> {
    let context = Context::cpu()?;
    let (mut optimizer, mut first) = (sgd(&context, 4), scaler(&context));
    fill(&mut optimizer, f32::INFINITY);
    first.step_and_update(&mut optimizer)?;
    let bytes = first.state()?.to_bytes();
    assert_eq!(bytes.len(), 80);
    let mut second = GradScaler::new(&context, ScalerOptions::default())?;
    second.set_state(&ScalerState::from_bytes(&bytes)?)?;
    assert_eq!((second.scale()?, second.state()?.skipped), (512.0, 1));
    refused(ScalerState::from_bytes(&[&bytes[..], &[0; 8]].concat()), InvalidArgument, "80");
    for length in [0, 3, 79] {
        refused(ScalerState::from_bytes(&bytes[..length]), InvalidArgument, "not the state");
    }
    let mut older = bytes[..64].to_vec(); // of a version that does not know the last two fields
    older[..4].copy_from_slice(&64u32.to_ne_bytes());
    second.set_state(&ScalerState::from_bytes(&older)?)?;
    assert_eq!((second.scale()?, second.state()?.updates, second.state()?.skipped), (512.0, 1, 0));
    for foreign in [0, 4] {
        let mut bytes = bytes.clone(); // of another size, of another format
        bytes[foreign] ^= 1;
        refused(ScalerState::from_bytes(&bytes), InvalidArgument, "not the state");
    }
    Ok(())
}

#[test]
fn reports_are_read_into_memory_of_the_callers() -> Result<()> {
    let context = Context::cpu()?;
    let (mut scaler, mut grads) = (scaler(&context), list(&context, 4));
    grads.get_mut::<f32>(0)?[2] = f32::NAN;
    scaler.check(&mut grads)?;
    let mut raw = std::mem::MaybeUninit::zeroed();
    let report = unsafe {
        scaler.read_report_async(Some(&grads), raw.as_mut_ptr())?;
        gradscaler::Report::from(raw.assume_init_ref())
    };
    assert_eq!((report.first_tensor, report.first_element, report.nan_count), (Some(0), Some(2), 1));
    assert_eq!(report.grad_norm.to_bits(), scaler.report_of(&grads)?.grad_norm.to_bits());
    let found = scaler.device_state_of(&grads)?;
    assert_eq!(unsafe { *found.found_inf }, 1.0);
    assert!(scaler.device_state()?.found_inf.is_null());
    Ok(())
}

#[test]
fn state_is_converted_between_formats() {
    let context = Context::cpu().unwrap();
    let tensor = |data: *mut std::ffi::c_void, dtype| {
        let mut raw: gradscaler_sys::gsc_tensor = unsafe { std::mem::zeroed() };
        (raw.data, raw.count, raw.dtype) = (data, 3, dtype);
        raw
    };
    let mut values = [1.0f32, -0.5, 3.0];
    let mut codes = [0u16; 3];
    let full = tensor(values.as_mut_ptr().cast(), gradscaler_sys::GSC_FP32);
    let half = tensor(codes.as_mut_ptr().cast(), gradscaler_sys::GSC_BF16);
    unsafe { gradscaler::ops::convert_state(&context, &full, None, &half) }.unwrap();
    assert_eq!(codes, [0x3f80, 0xbf00, 0x4040]);
    // A remainder belongs to weights.
    let remainder = tensor(codes.as_mut_ptr().cast(), gradscaler_sys::GSC_INT16);
    assert!(unsafe { gradscaler::ops::convert_state(&context, &full, None, &remainder) }.is_err());
}
