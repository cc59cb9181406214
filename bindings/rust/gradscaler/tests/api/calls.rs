// SPDX-License-Identifier: Apache-2.0
// The calls of an iteration: each hands its arguments to the library, and what the library refuses is an error that
// names the argument.
use super::*;

fn near(found: &[f32], expected: &[f32]) {
    let same = found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs());
    assert!(same && found.len() == expected.len(), "{found:?} instead of {expected:?}");
}

#[test]
fn gradients_for_an_optimizer_of_ones_own() -> Result<()> {
    let context = Context::cpu()?;
    let mut scaler = scaler(&context);
    let mut grads = TensorList::new(&context, [vec![-3072f32, 0.0], vec![4096f32], vec![0f32]])?;
    scaler.check_range(&mut grads, 1..3)?;
    refused(scaler.check_range(&mut grads, 2..3), BadState, "grads[2]");
    refused(scaler.update(), BadState, "gsc_scaler_update");
    scaler.check_range(&mut grads, 0..1)?;
    refused(scaler.check(&mut grads), BadState, "gsc_scaler_check");
    scaler.discard(&mut grads)?;
    scaler.check(&mut grads)?;
    scaler.unscale(&mut grads)?;
    near(grads.get(0)?, &[-3.0, 0.0]);
    scaler.clip_grad_norm(&mut grads, 2.5, Norm::L2)?;
    near(grads.get(0)?, &[-1.5, 0.0]);
    near(grads.get(1)?, &[2.0]);
    scaler.clip_grad_value(&mut grads, 1.75)?;
    near(grads.get(1)?, &[1.75]);
    let report = scaler.report_of(&grads)?;
    assert_eq!((report.grad_norm, report.grad_amax, report.overflow), (5.0, 4.0, false));
    assert!(scaler.should_step(&mut grads)?);
    scaler.discard_all()?;
    grads.get_mut(1)?.fill(4096f32);
    scaler.unscale(&mut grads)?;
    scaler.clip_grad_norm(&mut grads, 2.0, Norm::Inf)?;
    near(grads.get(1)?, &[2.0]);
    scaler.set_scale(64.0)?;
    assert_eq!(scaler.scale()?, 64.0);
    scaler.unscale(&mut grads)?; // the iteration began again
    Ok(())
}

#[test]
fn updates_are_counted_and_kept() -> Result<()> {
    let context = Context::cpu()?;
    let options = ScalerOptions::default().init_scale(1024.0).history_capacity(3);
    let mut scaler = GradScaler::new(&context, options)?;
    scaler.set_options(&options.growth_interval(1))?;
    let mut optimizer = sgd(&context, 4);
    for value in [1.0, 1.0, f32::NEG_INFINITY, f32::NAN, 1.0] {
        fill(&mut optimizer, value);
        scaler.step(&mut optimizer)?;
        scaler.update()?;
    }
    assert_eq!(optimizer.steps()?, Steps { applied: 3, skipped: 2 });
    let report = scaler.report().unwrap();
    assert_eq!((report.updates, report.skipped, report.consecutive_skips, report.scale), (5, 2, 0, 2048.0));
    let report = scaler.report_of(&optimizer)?;
    assert_eq!((report.nonfinite_count, report.first_tensor), (0, None));
    let history = scaler.history(2)?;
    let entries: Vec<_> = history.iter().map(|entry| (entry.update, entry.scale, entry.overflow)).collect();
    assert_eq!(entries, [(3, 1024.0, true), (4, 2048.0, false)]);
    assert_eq!(history[0].nonfinite_count, 4);
    assert_eq!(scaler.history(100)?.len(), 3);
    assert_eq!(unsafe { *scaler.device_state()?.inv_scale }, 1.0 / 2048.0);
    Ok(())
}

#[test]
fn spikes_are_skipped_and_counted() -> Result<()> {
    let context = Context::cpu()?;
    let options = ScalerOptions::preset(Preset::Check)?.skip_norm(10.0).history_capacity(3);
    let (mut scaler, mut optimizer) = (GradScaler::new(&context, options)?, sgd(&context, 1));
    for value in [4.0, f32::NAN, 20.0] {
        fill(&mut optimizer, value);
        scaler.step(&mut optimizer)?;
        if value == 20.0 {
            let words = scaler.device_state_of(&optimizer)?;
            assert_eq!(unsafe { (*words.norm_limit, *words.spike, *words.found_inf) }, (10.0, 1, 1.0));
        }
        scaler.update()?;
    }
    near(optimizer.params().get(0)?, &[-4.0]);
    let report = scaler.report()?;
    assert_eq!((report.spike, report.overflow, report.spikes, report.skipped), (true, false, 1, 2));
    assert_eq!((report.grad_norm, report.norm_limit, report.scale), (20.0, 10.0, 1.0));
    assert!((report.norm_average - 4.0).abs() < 1e-12);
    assert_eq!(scaler.state()?.spikes, 1);
    let history = scaler.history(3)?;
    let entries: Vec<_> = history.iter().map(|entry| (entry.spike, entry.overflow, entry.norm_limit)).collect();
    assert_eq!(entries, [(false, false, 10.0), (false, true, 10.0), (true, false, 10.0)]);
    assert!(scaler.device_state()?.spike.is_null());
    Ok(())
}

#[test]
fn a_static_scale_stays() -> Result<()> {
    let context = Context::cpu()?;
    for (preset, scale) in [(Preset::Check, 1.0), (Preset::StaticScale, 128.0)] {
        let options = ScalerOptions::preset(preset)?.growth_interval(1);
        assert!(options.static_scale);
        let (mut scaler, mut optimizer) = (GradScaler::new(&context, options)?, sgd(&context, 1));
        for value in [scale, f32::NAN, scale] {
            fill(&mut optimizer, value);
            scaler.step_and_update(&mut optimizer)?;
            assert_eq!(scaler.scale()?, scale);
        }
        near(optimizer.params().get(0)?, &[-2.0]);
    }
    Ok(())
}

/// Of the second of two optimizers, after the update.
#[test]
fn gradients_of_before_the_update_are_refused() -> Result<()> {
    let context = Context::cpu()?;
    let (mut scaler, mut first, mut second) = (scaler(&context), sgd(&context, 1), sgd(&context, 1));
    let mut loss = [1f32];
    scaler.scale_into(&[1f32], &mut loss)?;
    scaler.step(&mut first)?;
    scaler.update()?;
    let error = refused(scaler.step(&mut second), BadState, "step all optimizers of a backward pass before update");
    assert_eq!(error.place().argument, "optimizer");
    scaler.scale_into(&[1f32], &mut loss)?;
    scaler.step(&mut first)?;
    scaler.step(&mut second)?;
    scaler.update()
}

#[test]
fn learning_rates_and_zeros() -> Result<()> {
    let context = Context::cpu()?;
    let mut optimizer = sgd(&context, 1);
    let rate = Box::new(0.5f32);
    unsafe { optimizer.set_device_lr(0, &*rate) }?;
    fill(&mut optimizer, 1.0);
    optimizer.step()?;
    assert_eq!(optimizer.params().get::<f32>(0)?, [-0.5]);
    unsafe { optimizer.set_device_lr(0, std::ptr::null()) }?;
    let factor = Box::new(0.25f32);
    unsafe { optimizer.grads_mut().set_device_factor(&*factor) }?;
    optimizer.step()?;
    assert_eq!(optimizer.params().get::<f32>(0)?, [-0.75]);
    unsafe { optimizer.grads_mut().set_device_factor(std::ptr::null()) }?;
    let mut norms = Box::new([-1.0f64; 1]);
    unsafe { optimizer.grads_mut().set_device_norms(norms.as_mut_ptr()) }?;
    GradScaler::new(&context, ScalerOptions::preset(Preset::Check)?)?.check(&mut optimizer)?;
    assert_eq!(norms[0], 1.0);
    unsafe { optimizer.grads_mut().set_device_norms(std::ptr::null_mut()) }?;
    optimizer.zero_grads()?;
    assert_eq!(optimizer.grads().get::<f32>(0)?, [0.0]);
    optimizer.step()?;
    assert_eq!(optimizer.params().get::<f32>(0)?, [-0.75]);
    Ok(())
}

/// Of calls whose arguments the crate converts; tests/capi/bad_input* have all others.
#[test]
fn what_is_refused_names_the_argument() -> Result<()> {
    let context = Context::cpu()?;
    let (mut scaler, mut optimizer) = (scaler(&context), sgd(&context, 4));
    let options = scaler.options()?;
    let state = scaler.state()?;
    let steps = Steps { applied: u64::MAX, skipped: 0 };
    let sgd_of = OptimizerOptions::sgd();
    let mut zeros = vec![0u8; 64];
    let mut short = [0f32; 0];
    for (result, argument, field) in [
        (Context::new(ContextOptions::default().num_threads(1 << 20)).map(drop), "options", "num_threads"),
        (scaler.set_options(&options.growth_interval(0)), "options", "growth_interval"),
        (scaler.set_state(&ScalerState { scale: -1.0, ..state }), "state", "scale"),
        (scaler.check_range(&mut optimizer, 1..3), "first", ""),
        (scaler.step_slice(&mut optimizer, 0).map(drop), "max_bytes", ""),
        (optimizer.set_options(usize::MAX, &sgd_of), "group", ""),
        (optimizer.set_steps(steps), "applied", ""),
        (optimizer.set_tensor_steps(&[1, 2]), "count", ""),
        (optimizer.state(0).map(drop), "slot", ""),
        (optimizer.save_to(&mut zeros), "size", ""),
        (optimizer.load(&zeros), "buffer", ""),
        (ops::cast(&context, &[1f32], &mut short), "src", ""),
    ] {
        let error = refused(result, InvalidArgument, argument);
        let place = error.place();
        assert_eq!((place.argument.as_str(), place.field.as_str()), (argument, field), "{error}");
    }
    // Nothing has changed.
    assert_eq!(scaler.options()?, options);
    assert_eq!(scaler.state()?, state);
    scaler.step_and_update(&mut optimizer)?;
    Ok(())
}
