// SPDX-License-Identifier: Apache-2.0
// Objects on several threads: what may move, what is shared, and what is found out.
use super::*;

#[test]
fn objects_move_between_threads_and_contexts_are_shared() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<TensorList<'static>>();
    send::<Optimizer<'static>>();
    send::<GradScaler>();
    send::<Error>();
    send::<Context>();
    sync::<Context>();
    sync::<Error>();
}

#[test]
fn trainers_on_many_threads_share_a_context() {
    let context = Context::new(ContextOptions::default().num_threads(2)).unwrap();
    let train = |context: Context| {
        let (mut optimizer, mut scaler) = (sgd(&context, 1000), scaler(&context));
        for _ in 0..50 {
            fill(&mut optimizer, 1024.0);
            scaler.step(&mut optimizer)?;
            scaler.update()?;
        }
        // Goes on, and ends, where it was not made.
        Ok::<_, Error>((optimizer, scaler))
    };
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let context = context.clone();
            thread::spawn(move || train(context))
        })
        .collect();
    for thread in threads {
        let (mut optimizer, mut scaler) = thread.join().unwrap().unwrap();
        fill(&mut optimizer, 1024.0);
        scaler.step_and_update(&mut optimizer).unwrap();
        assert_eq!(optimizer.params().get::<f32>(0).unwrap(), [-51.0; 1000]);
    }
}

// The header allows one thread at a time for each object, and `update` uses the lists of its iteration. That a list
// is on another thread by then is an error of the program's, and not a race.
#[test]
fn a_list_that_has_moved_on_during_an_iteration() {
    let context = Context::new(ContextOptions::default().num_threads(1)).unwrap();
    let mut first = scaler(&context);
    for _ in 0..200 {
        let mut grads = list(&context, 8);
        first.check(&mut grads).unwrap();
        let context = context.clone();
        let other = thread::spawn(move || {
            let mut second = scaler(&context);
            for _ in 0..10 {
                if let Err(error) = second.check(&mut grads) {
                    assert_eq!(error.status(), BadState, "{error}");
                } else {
                    second.update().unwrap();
                }
            }
            grads
        });
        while let Err(error) = first.update() {
            assert_eq!(error.status(), BadState, "{error}");
        }
        let mut grads = other.join().unwrap();
        first.check(&mut grads).unwrap();
        first.update().unwrap();
    }
}

// The log runs in the middle of `update`, which is putting the optimizer's gradients back to where they began.
#[test]
fn a_step_of_its_own_beside_the_update_of_its_gradients() -> Result<()> {
    type Slot = Mutex<Option<Optimizer<'static>>>;
    let slot = Arc::new(Slot::default());
    let results = Arc::new(Mutex::new(Vec::new()));
    let (taken, kept) = (Arc::clone(&slot), Arc::clone(&results));
    let log = move |_: LogLevel, _: &str| {
        let taken = Arc::clone(&taken);
        let other = thread::spawn(move || {
            // Other calls than the update log too.
            let mut slot = taken.lock().unwrap();
            slot.as_mut().map(|optimizer| [optimizer.step(), optimizer.step_scaled(1.0, false)])
        });
        kept.lock().unwrap().extend(other.join().unwrap().into_iter().flatten());
    };
    let context = Context::new(ContextOptions::default().log(log))?;
    let options =
        ScalerOptions::default().init_scale(1.0).min_scale(1.0).floor_action(FloorAction::Report).floor_patience(1);
    let mut scaler = GradScaler::new(&context, options)?;
    let mut optimizer = sgd(&context, 8);
    fill(&mut optimizer, f32::INFINITY);
    scaler.unscale(&mut optimizer)?;
    *slot.lock().unwrap() = Some(optimizer);
    scaler.update()?;
    let results = std::mem::take(&mut *results.lock().unwrap());
    assert_eq!(results.len(), 2);
    for result in results {
        refused(result, BadState, "in use by a call");
    }
    slot.lock().unwrap().as_mut().unwrap().step()?;
    Ok(())
}

#[test]
fn steps_in_slices() -> Result<()> {
    let context = Context::cpu()?;
    let mut scaler = scaler(&context);
    let mut optimizer = sgd(&context, 8);
    assert!(scaler.step_slice(&mut optimizer, 1)? > 0);
    refused(scaler.update(), BadState, "slices");
    assert_eq!(scaler.step_slice(&mut optimizer, 1 << 20)?, 0);
    scaler.update()?;
    let (host, device) = context.memory()?;
    assert!(host > 0 && device == 0);
    Ok(())
}

#[test]
fn buffers_may_go_in_the_middle_of_an_iteration() {
    let context = Context::cpu().unwrap();
    let mut scaler = scaler(&context);
    let mut optimizer = sgd(&context, 8);
    fill(&mut optimizer, f32::INFINITY);
    scaler.step(&mut optimizer).unwrap();
    drop(optimizer);
    scaler.update().unwrap();
    assert_eq!(scaler.scale().unwrap(), 512.0);
}
