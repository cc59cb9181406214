// SPDX-License-Identifier: Apache-2.0
// Options, checkpoints, groups and reports: what goes in comes out.
use super::*;

#[test]
fn presets_and_defaults_are_the_librarys() {
    assert_eq!(ScalerOptions::preset(Preset::Torch).unwrap(), ScalerOptions::default());
    let keras = ScalerOptions::preset(Preset::Keras).unwrap();
    assert!(keras.no_finite_guard && keras.fp32_products);
    let scaler = GradScaler::new(&Context::cpu().unwrap(), keras).unwrap();
    assert_eq!(scaler.options().unwrap(), keras);
}

/// One of each type: the others are made by the same macro.
#[test]
fn options_of_a_scaler_arrive() {
    let options = ScalerOptions::default()
        .init_scale(8.0)
        .growth_interval(3)
        .growth_factor(4.0)
        .growth_timing(gradscaler::GrowthTiming::OneLater)
        .grow_on_equal(true);
    let context = Context::cpu().unwrap();
    assert_eq!(GradScaler::new(&context, options).unwrap().options().unwrap(), options);
    let disabled = GradScaler::new(&context, ScalerOptions::default().enabled(false)).unwrap();
    assert_eq!(disabled.scale().unwrap(), 1.0);
}

#[test]
fn options_of_an_optimizer_arrive() {
    let context = Context::cpu().unwrap();
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
        let mut optimizer = Optimizer::new(options, (list(&context, 2), list(&context, 2))).unwrap();
        let found = optimizer.options(0).unwrap();
        // What was given is as it was; what was not has a default now, and can be given back.
        let (given, all) = (format!("{:?}", options), format!("{:?}", found));
        for field in given.trim_end_matches(" }").split(", ").filter(|field| !field.ends_with(": None")) {
            assert!(all.contains(field), "{} in {}", field, all);
        }
        assert!(!all.contains(": None"), "{}", all);
        optimizer.set_options(0, &found).unwrap();
        assert_eq!(optimizer.options(0).unwrap(), found);
    }
    assert_eq!(OptimizerOptions::default(), OptimizerOptions::adamw());
}

#[test]
fn optimizers_are_saved_and_restored() {
    let context = Context::cpu().unwrap();
    let adam = || Optimizer::new(OptimizerOptions::adam(), (list(&context, 3), list(&context, 3))).unwrap();
    let (mut first, mut second) = (adam(), adam());
    fill(&mut first, 2.0);
    first.step().unwrap();
    second.load(&first.save().unwrap()).unwrap();
    assert_eq!(second.steps().unwrap(), Steps { applied: 1, skipped: 0 });
    assert_eq!(second.state_count().unwrap(), 2);
    let exp_avg = second.state(0).unwrap();
    assert_eq!((exp_avg.name().as_str(), exp_avg.len().unwrap()), ("exp_avg", 1));
    assert_eq!(exp_avg.dtype(0).unwrap(), DType::Fp32);
    assert_eq!(exp_avg.get::<f32>(0).unwrap(), first.state(0).unwrap().get::<f32>(0).unwrap());
    assert!(exp_avg.get::<f32>(0).unwrap()[0] > 0.19);
    second.state_mut(0).unwrap().get_mut::<f32>(0).unwrap()[1] = 7.0;
    assert_eq!(second.state(0).unwrap().get::<f32>(0).unwrap()[1], 7.0);
    refused(second.load(&[0; 100]), Status::InvalidArgument, "");
}

#[test]
fn state_of_ones_own_is_used() {
    let context = Context::cpu().unwrap();
    let (params, grads) = (list(&context, 2), TensorList::new(&context, [vec![1f32; 2]]).unwrap());
    let state = vec![TensorList::new(&context, [vec![10f32; 2]]).unwrap()];
    let lists = Lists { params, grads, model_copy: None, state };
    let mut optimizer = Optimizer::new(OptimizerOptions::sgd().lr(1.0).momentum(0.5), lists).unwrap();
    optimizer.set_steps(Steps { applied: 1, skipped: 2 }).unwrap();
    optimizer.step().unwrap();
    assert_eq!(optimizer.state(0).unwrap().get::<f32>(0).unwrap(), [6.0; 2]);
    assert_eq!(optimizer.params().get::<f32>(0).unwrap(), [-6.0; 2]);
    assert_eq!(optimizer.steps().unwrap(), Steps { applied: 2, skipped: 2 });
}

/// The averages of the iterates, between steps, and of the weights, in each step.
#[test]
fn weights_are_averaged() {
    let context = Context::cpu().unwrap();
    let one = || TensorList::new(&context, [vec![1f32; 1]]).unwrap();
    let options = OptimizerOptions::sgd_schedule_free().lr(1.0).momentum(0.5).weight_lr_power(0.0).ema_decay(0.5);
    let mut optimizer = Optimizer::new(options, (one(), one())).unwrap();
    optimizer.step().unwrap();
    optimizer.step().unwrap();
    assert_eq!(optimizer.params().get::<f32>(0).unwrap(), [-0.75]);
    let ema = optimizer.state(2).unwrap();
    assert_eq!(ema.name().as_str(), "ema");
    assert_eq!(ema.get::<f32>(0).unwrap(), [-0.375]); // of 0 and -0.75
    optimizer.set_evaluating(true).unwrap();
    assert_eq!(optimizer.evaluating().unwrap(), 1);
    assert_eq!(optimizer.params().get::<f32>(0).unwrap(), [-0.5]); // the mean of 0 and -1
    refused(optimizer.step(), Status::BadState, "optimizer");
    optimizer.set_evaluating(false).unwrap();
    assert_eq!(optimizer.params().get::<f32>(0).unwrap(), [-0.75]);
}

#[test]
fn absent_tensors_keep_their_parameters_and_counts() {
    let context = Context::cpu().unwrap();
    let two = || TensorList::new(&context, [vec![1f32; 1], vec![1f32; 1]]).unwrap();
    let mut optimizer = Optimizer::new(OptimizerOptions::sgd().lr(1.0), (two(), two())).unwrap();
    optimizer.grads_mut().set_present(&[true, false]).unwrap();
    optimizer.step().unwrap();
    assert_eq!(optimizer.params().get::<f32>(0).unwrap(), [0.0]);
    assert_eq!(optimizer.params().get::<f32>(1).unwrap(), [1.0]);
    assert_eq!(optimizer.tensor_steps().unwrap(), [1, 0]);
    assert!(optimizer.grads_mut().set_present(&[true]).is_err());
    optimizer.set_offsets(&[64, 32]).unwrap();
    assert!(optimizer.set_offsets(&[64, 33]).is_err());
    assert!(optimizer.set_offsets(&[64]).is_err());
    optimizer.set_tensor_steps(&[3, 9]).unwrap();
    assert_eq!(optimizer.tensor_steps().unwrap(), [3, 9]);
    assert_eq!(optimizer.steps().unwrap().applied, 9);
    assert_eq!(optimizer.unchanged().unwrap(), 0);
}

#[test]
fn groups_have_hyper_parameters_of_their_own() {
    let context = Context::cpu().unwrap();
    let two = || TensorList::new(&context, [vec![1f32; 1], vec![1f32; 1]]).unwrap();
    let mut optimizer = Optimizer::new(OptimizerOptions::sgd().lr(1.0), (two(), two())).unwrap();
    let group = optimizer.add_group(1..2, &OptimizerOptions::sgd().lr(0.5)).unwrap();
    assert_eq!((group, optimizer.group_count().unwrap()), (1, 2));
    optimizer.set_lr(0, 0.25).unwrap();
    optimizer.step_scaled(0.5, false).unwrap();
    optimizer.step_scaled(0.5, true).unwrap();
    let weights = |i| optimizer.params().get::<f32>(i).unwrap()[0];
    assert_eq!((weights(0), weights(1)), (0.875, 0.75));
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = optimizer.add_group(2..1, &OptimizerOptions::sgd());
    refused(reversed, Status::InvalidArgument, "count");
}

#[test]
fn a_scalers_state_is_the_librarys_struct() {
    let context = Context::cpu().unwrap();
    let (mut optimizer, mut first) = (sgd(&context, 4), scaler(&context));
    fill(&mut optimizer, f32::INFINITY);
    first.step_and_update(&mut optimizer).unwrap();
    let bytes = first.state().unwrap().to_bytes();
    assert_eq!(bytes.len(), 72);
    let mut second = GradScaler::new(&context, ScalerOptions::default()).unwrap();
    second.set_state(&ScalerState::from_bytes(&bytes).unwrap()).unwrap();
    assert_eq!((second.scale().unwrap(), second.state().unwrap().skipped), (512.0, 1));
    refused(ScalerState::from_bytes(&bytes[1..]), Status::InvalidArgument, "72");
    for foreign in [0, 4] {
        let mut bytes = bytes.clone(); // of another size, of another format
        bytes[foreign] ^= 1;
        refused(ScalerState::from_bytes(&bytes), Status::InvalidArgument, "not the state");
    }
}

#[test]
fn reports_are_read_into_memory_of_the_callers() {
    let context = Context::cpu().unwrap();
    let (mut scaler, mut grads) = (scaler(&context), list(&context, 4));
    grads.get_mut::<f32>(0).unwrap()[2] = f32::NAN;
    scaler.check(&mut grads).unwrap();
    let mut raw = std::mem::MaybeUninit::zeroed();
    let report = unsafe {
        scaler.read_report_async(Some(&grads), raw.as_mut_ptr()).unwrap();
        gradscaler::Report::from(raw.assume_init_ref())
    };
    assert_eq!((report.first_tensor, report.first_element, report.nan_count), (Some(0), Some(2), 1));
    assert_eq!(report.grad_norm.to_bits(), scaler.report_of(&grads).unwrap().grad_norm.to_bits());
    let found = scaler.device_state_of(&grads).unwrap();
    assert_eq!(unsafe { *found.found_inf }, 1.0);
    assert!(scaler.device_state().unwrap().found_inf.is_null());
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
