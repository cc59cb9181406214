// SPDX-License-Identifier: Apache-2.0
// Closures that the library calls, and panics in them.
use super::*;

#[test]
fn a_job_system_runs_the_work() {
    let regions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&regions);
    let options = ContextOptions::default().num_threads(4).parallel_for(move |count, body| {
        counted.fetch_add(1, Ordering::Relaxed);
        let next = AtomicI32::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| loop {
                    match next.fetch_add(1, Ordering::Relaxed) {
                        index if index < count => body(index),
                        _ => break,
                    }
                });
            }
        });
    });
    let context = Context::new(options).unwrap();
    let (mut optimizer, mut scaler) = (sgd(&context, COUNT), scaler(&context));
    fill(&mut optimizer, 1024.0);
    scaler.step_and_update(&mut optimizer).unwrap();
    assert_stepped(&optimizer);
    assert!(regions.load(Ordering::Relaxed) > 0);
}

fn assert_stepped(optimizer: &Optimizer) {
    assert!(optimizer.params().get::<f32>(0).unwrap().iter().all(|&weight| weight == -1.0));
}

fn assert_found_out(options: ContextOptions) {
    let context = Context::new(options.num_threads(4)).unwrap();
    let mut optimizer = sgd(&context, COUNT);
    fill(&mut optimizer, 1.0);
    refused(optimizer.step(), Callback, "parallel_for");
    assert_stepped(&optimizer);
}

#[test]
fn a_job_system_that_leaves_work_out_is_found_out() {
    assert_found_out(ContextOptions::default().parallel_for(|count, body| (1..count).for_each(body)));
}

#[test]
fn a_job_system_that_makes_up_tasks_is_found_out() {
    for extra in [i32::MIN, -1, 1 << 20, i32::MAX] {
        assert_found_out(
            ContextOptions::default().parallel_for(move |count, body| (0..count).chain([extra]).for_each(body)),
        );
    }
}

#[test]
fn a_panic_of_a_job_system_goes_on_when_the_work_is_done() {
    let options = ContextOptions::default().num_threads(4).parallel_for(|_, _| panic!("out of jobs"));
    let context = Context::new(options).unwrap();
    let mut optimizer = sgd(&context, COUNT);
    fill(&mut optimizer, 1.0);
    let panic = catch_unwind(AssertUnwindSafe(|| optimizer.step())).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"out of jobs"));
    assert_stepped(&optimizer);
}

fn at_the_floor(context: &Context) -> GradScaler {
    let options = ScalerOptions::default().init_scale(2.0).min_scale(2.0).floor_action(FloorAction::Error);
    let mut scaler = GradScaler::new(context, options).unwrap();
    let mut grads = TensorList::new(context, [vec![f32::NAN]]).unwrap();
    scaler.check(&mut grads).unwrap();
    scaler.update().unwrap();
    scaler
}

#[test]
fn messages_arrive_until_the_log_is_replaced() {
    let messages = Arc::new(Mutex::new(Vec::new()));
    let keep = |kept: &Arc<Mutex<Vec<_>>>| {
        let kept = Arc::clone(kept);
        move |level: LogLevel, message: &str| {
            if level == LogLevel::Warning {
                kept.lock().unwrap().push(message.to_owned());
            }
        }
    };
    let context = Context::new(ContextOptions::default().log(keep(&messages))).unwrap();
    drop(at_the_floor(&context));
    assert_eq!(messages.lock().unwrap().len(), 1);
    assert!(messages.lock().unwrap()[0].contains("cannot be lowered"), "{messages:?}");
    context.set_log(None::<fn(LogLevel, &str)>);
    drop(at_the_floor(&context));
    assert_eq!(messages.lock().unwrap().len(), 1);
    context.set_log(Some(keep(&messages)));
    // The context lives on in the scaler, and its log with it.
    let mut scaler = at_the_floor(&context);
    drop(context);
    scaler.set_scale(4.0).unwrap();
    assert_eq!(messages.lock().unwrap().len(), 2);
}

#[test]
fn a_report_at_the_floor_comes_with_the_error() {
    let scaler = at_the_floor(&Context::cpu().unwrap());
    let error = refused(scaler.report(), ScaleFloor, "");
    let report = error.report().unwrap();
    assert_eq!((report.at_floor, report.skipped, report.scale), (true, 1, 2.0));
}

#[test]
fn a_report_of_spikes_that_persist_comes_with_the_error() -> Result<()> {
    let context = Context::cpu()?;
    let options =
        ScalerOptions::preset(Preset::Check)?.skip_norm(10.0).spike_patience(2).spike_action(SpikeAction::Error);
    let mut scaler = GradScaler::new(&context, options)?;
    let mut grads = TensorList::new(&context, [vec![20f32]])?;
    scaler.check(&mut grads)?;
    scaler.update()?;
    assert!(scaler.report()?.spike);
    scaler.check(&mut grads)?;
    scaler.update()?;
    for error in [refused(scaler.report(), Spikes, "20"), refused(scaler.report_of(&grads), Spikes, "above its limit")]
    {
        let report = error.report().unwrap();
        assert_eq!((report.spikes_persist, report.consecutive_skips, report.grad_norm), (true, 2, 20.0));
    }
    grads.get_mut::<f32>(0)?[0] = 1.0;
    scaler.check(&mut grads)?;
    scaler.update()?;
    assert!(!scaler.report()?.spike);
    Ok(())
}

#[test]
fn ranks_are_joined() -> Result<()> {
    let context = Context::cpu()?;
    let mut scaler = scaler(&context);
    let mut grads = list(&context, 4);
    grads.get_mut::<f32>(0)?.fill(1024.0);
    // The other rank has the same gradients, and an inf.
    scaler.set_reducer(|values| {
        values[0] += 1.0;
        values[1] *= 2.0;
        Ok(())
    })?;
    assert!(!scaler.should_step(&mut grads)?);
    assert_eq!(scaler.report_of(&grads)?.nonfinite_count, 1);
    scaler.update()?;
    scaler.remove_reducer()?;
    grads.get_mut::<f32>(0)?.fill(512.0);
    assert!(scaler.should_step(&mut grads)?);
    refused(scaler.set_reducer(|_| Ok(())), BadState, "update");
    Ok(())
}

#[test]
fn what_a_reducer_says_is_the_source_of_the_error() {
    let context = Context::cpu().unwrap();
    let (mut scaler, mut grads) = (scaler(&context), list(&context, 4));
    scaler.set_reducer(|_| Err("rank 3 has left".into())).unwrap();
    let error = refused(scaler.check(&mut grads), Callback, "all_reduce");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "rank 3 has left");
    let again = refused(scaler.update(), BadState, "");
    assert!(std::error::Error::source(&again).is_none());
}

#[test]
fn a_panic_of_a_reducer_goes_on_after_the_call() {
    let context = Context::cpu().unwrap();
    let (mut scaler, mut grads) = (scaler(&context), list(&context, 4));
    scaler.set_reducer(|_| panic!("no network")).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| scaler.check(&mut grads))).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"no network"));
    scaler.set_reducer(|_| Ok(())).unwrap();
    scaler.check(&mut grads).unwrap();
    scaler.update().unwrap();
}
