// SPDX-License-Identifier: Apache-2.0
// What the crate adds to the library: ownership of buffers, threads, callbacks, panics and errors. What the library does
// is in tests/conformance.
use gradscaler::{
    ops, Context, ContextOptions, DType, Error, FloorAction, GradScaler, Lists, LogLevel, Norm,
    Optimizer, OptimizerKind, OptimizerOptions, Preset, Result, ScalerOptions, ScalerState, Status,
    Steps, Tensor, TensorList, TensorRef,
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
    let error = result.err().expect("an error");
    assert_eq!(error.status(), status, "{}", error);
    assert!(error.message().contains(says), "{}", error);
    error
}

mod threads {
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
                        assert_eq!(error.status(), Status::BadState, "{}", error);
                    } else {
                        second.update().unwrap();
                    }
                }
                grads
            });
            while let Err(error) = first.update() {
                assert_eq!(error.status(), Status::BadState, "{}", error);
            }
            let mut grads = other.join().unwrap();
            first.check(&mut grads).unwrap();
            first.update().unwrap();
        }
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
}

mod memory {
    use super::*;

    #[test]
    fn borrowed_buffers_are_written_and_given_back() {
        let context = Context::cpu().unwrap();
        let (mut weights, mut gradients) = ([1f32; 3], vec![4f64; 3]);
        let params = TensorList::new(&context, [&mut weights]).unwrap();
        let grads = TensorList::new(&context, [&mut gradients]).unwrap();
        let mut optimizer = Optimizer::new(
            OptimizerOptions::sgd().lr(0.25).zero_grads(true),
            (params, grads),
        )
        .unwrap();
        optimizer.step().unwrap();
        drop(optimizer);
        assert_eq!((weights, gradients), ([0.0; 3], vec![0.0; 3]));
    }

    #[test]
    fn vectors_are_kept_whatever_their_capacity_and_released() {
        let context = Context::cpu().unwrap();
        let mut roomy = Vec::with_capacity(100);
        roomy.extend([1f32, 2.0]);
        let list = TensorList::new(
            &context,
            [Tensor::from(roomy), Tensor::from(Vec::<f32>::new())],
        )
        .unwrap();
        assert_eq!(list.get::<f32>(0).unwrap(), [1.0, 2.0]);
        assert_eq!(list.get::<f32>(1).unwrap(), [0f32; 0]);
        assert!(list.tensor(1).unwrap().is_empty());
    }

    #[test]
    fn several_buffers_are_written_at_once() {
        let context = Context::cpu().unwrap();
        let (params, grads) = (
            list(&context, 2),
            TensorList::new(&context, [vec![0f32; 2]]).unwrap(),
        );
        let model_copy = Some(TensorList::new(&context, [Tensor::bf16(vec![0; 2])]).unwrap());
        let lists = Lists {
            params,
            grads,
            model_copy,
            state: vec![],
        };
        let mut optimizer = Optimizer::new(OptimizerOptions::sgd().lr(1.0), lists).unwrap();
        let mut lists = optimizer.lists_mut();
        let copy = lists.model_copy.as_mut().unwrap().bits_mut(0).unwrap();
        let (weights, gradients) = (
            lists.params.get_mut::<f32>(0).unwrap(),
            lists.grads.get_mut::<f32>(0).unwrap(),
        );
        weights[0] = 3.0;
        gradients[0] = f32::from(copy[0]) + 1.0;
        optimizer.step().unwrap();
        assert_eq!(optimizer.params().get::<f32>(0).unwrap(), [2.0, 0.0]);
        assert_eq!(
            optimizer.model_copy().unwrap().bits(0).unwrap(),
            [0x4000, 0]
        );
    }

    #[test]
    fn other_types_and_indices_are_refused() {
        let context = Context::cpu().unwrap();
        let mut list = TensorList::new(&context, [Tensor::fp16(vec![0; 2])]).unwrap();
        refused(
            list.get::<f32>(0),
            Status::InvalidArgument,
            "Fp16, not Fp32",
        );
        refused(
            list.get_mut::<f64>(0),
            Status::InvalidArgument,
            "Fp16, not Fp64",
        );
        refused(
            list.bits_mut(1),
            Status::InvalidArgument,
            "index is 1, but the list has 1 tensors",
        );
        let floats = super::list(&context, 2);
        refused(
            floats.bits(0),
            Status::InvalidArgument,
            "Fp32, not of 16 bits",
        );
    }

    #[test]
    fn an_address_is_host_memory_in_a_list_of_the_cpu_only() {
        let context = Context::cpu().unwrap();
        let mut memory = [1f32, 2.0];
        let tensor = unsafe { Tensor::from_raw_parts(memory.as_mut_ptr().cast(), 2, DType::Fp32) };
        refused(tensor.as_slice::<f32>(), Status::Unsupported, "address");
        let list = TensorList::new(&context, [tensor]).unwrap();
        assert_eq!(list.get::<f32>(0).unwrap(), [1.0, 2.0]);
        let null = unsafe { Tensor::from_raw_parts(std::ptr::null_mut(), 2, DType::Fp32) };
        refused(
            TensorList::new(&context, [null]),
            Status::InvalidArgument,
            "tensors[0]",
        );
    }

    #[test]
    fn buffers_are_replaced_by_others_of_the_same_kind() {
        let context = Context::cpu().unwrap();
        let mut optimizer = sgd(&context, 2);
        optimizer.grads_mut().set_tensors([vec![5f32; 2]]).unwrap();
        optimizer.step().unwrap();
        assert_eq!(optimizer.params().get::<f32>(0).unwrap(), [-5.0; 2]);
        let set = |optimizer: &mut Optimizer<'static>, tensor| {
            optimizer.grads_mut().set_tensors([tensor])
        };
        refused(
            set(&mut optimizer, Tensor::from(vec![0f32; 3])),
            Status::InvalidArgument,
            "tensors[0]",
        );
        refused(
            set(&mut optimizer, Tensor::fp16(vec![0; 2])),
            Status::InvalidArgument,
            "tensors[0]",
        );
        let mut scaler = scaler(&context);
        scaler.check(&mut optimizer).unwrap();
        refused(
            set(&mut optimizer, Tensor::from(vec![0f32; 2])),
            Status::BadState,
            "update",
        );
        assert_eq!(optimizer.grads().get::<f32>(0).unwrap(), [5.0; 2]);
    }

    #[test]
    fn errors_say_in_fields_what_they_are_about() {
        let context = Context::cpu().unwrap();
        let error =
            GradScaler::new(&context, ScalerOptions::default().init_scale(0.0)).unwrap_err();
        let place = error.place();
        assert_eq!(
            (place.function.as_str(), place.argument.as_str()),
            ("gsc_scaler_create", "options")
        );
        assert_eq!(
            (place.field.as_str(), place.index, place.tensor),
            ("init_scale", None, None)
        );
        let lists = Lists {
            params: list(&context, 4),
            grads: list(&context, 4),
            model_copy: None,
            state: vec![list(&context, 4), list(&context, 3)],
        };
        let error = Optimizer::new(OptimizerOptions::adam(), lists).unwrap_err();
        let place = error.place();
        assert_eq!(
            (place.argument.as_str(), place.index, place.tensor),
            ("state", Some(1), Some(0))
        );
    }

    #[test]
    fn names_are_in_messages() {
        let context = Context::cpu().unwrap();
        let mut bits = vec![0u16; 3];
        let bytes = bits.as_mut_ptr().cast::<u8>().wrapping_add(1);
        let odd =
            unsafe { Tensor::from_raw_parts(bytes.cast(), 1, DType::Fp16) }.named("layer1.bias");
        refused(
            TensorList::new(&context, [odd]),
            Status::InvalidArgument,
            "layer1.bias",
        );
        let zero = Tensor::from(vec![0f32; 1]).named("a\0b");
        refused(
            TensorList::new(&context, [zero]),
            Status::InvalidArgument,
            "tensors[0]: the name has a zero byte",
        );
    }

    #[test]
    #[should_panic(expected = "range 1..3 of 2 elements")]
    fn a_slice_beyond_the_end_panics_as_slices_do() {
        Tensor::from(vec![0f32; 2]).slice(1..3);
    }
}

mod callbacks {
    use super::*;

    #[test]
    fn a_job_system_runs_the_work() {
        let regions = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&regions);
        let options = ContextOptions::default()
            .num_threads(4)
            .parallel_for(move |count, body| {
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
        assert!(optimizer
            .params()
            .get::<f32>(0)
            .unwrap()
            .iter()
            .all(|&weight| weight == -1.0));
        assert!(regions.load(Ordering::Relaxed) > 0);
    }

    #[test]
    fn a_job_system_that_leaves_work_out_is_found_out() {
        let options = ContextOptions::default()
            .num_threads(4)
            .parallel_for(|count, body| (1..count).for_each(body));
        let context = Context::new(options).unwrap();
        let mut optimizer = sgd(&context, COUNT);
        fill(&mut optimizer, 1.0);
        refused(optimizer.step(), Status::Callback, "parallel_for");
        assert!(optimizer
            .params()
            .get::<f32>(0)
            .unwrap()
            .iter()
            .all(|&weight| weight == -1.0));
    }

    #[test]
    fn a_panic_of_a_job_system_goes_on_when_the_work_is_done() {
        let options = ContextOptions::default()
            .num_threads(4)
            .parallel_for(|_, _| panic!("out of jobs"));
        let context = Context::new(options).unwrap();
        let mut optimizer = sgd(&context, COUNT);
        fill(&mut optimizer, 1.0);
        let panic = catch_unwind(AssertUnwindSafe(|| optimizer.step())).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"out of jobs"));
        assert!(optimizer
            .params()
            .get::<f32>(0)
            .unwrap()
            .iter()
            .all(|&weight| weight == -1.0));
    }

    fn at_the_floor(context: &Context) -> GradScaler {
        let options = ScalerOptions::default()
            .init_scale(2.0)
            .min_scale(2.0)
            .floor_action(FloorAction::Error);
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
        assert!(
            messages.lock().unwrap()[0].contains("cannot be lowered"),
            "{:?}",
            messages
        );
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
        let error = refused(scaler.report(), Status::ScaleFloor, "");
        let report = error.report().unwrap();
        assert_eq!(
            (report.at_floor, report.skipped, report.scale),
            (true, 1, 2.0)
        );
    }

    #[test]
    fn ranks_are_joined() {
        let context = Context::cpu().unwrap();
        let mut scaler = scaler(&context);
        let mut grads = list(&context, 4);
        grads.get_mut::<f32>(0).unwrap().fill(1024.0);
        // The other rank has the same gradients, and an inf.
        scaler
            .set_reducer(|values| {
                values[0] += 1.0;
                values[1] *= 2.0;
                Ok(())
            })
            .unwrap();
        assert!(!scaler.should_step(&mut grads).unwrap());
        assert_eq!(scaler.report_of(&grads).unwrap().nonfinite_count, 1);
        scaler.update().unwrap();
        scaler.remove_reducer().unwrap();
        grads.get_mut::<f32>(0).unwrap().fill(512.0);
        assert!(scaler.should_step(&mut grads).unwrap());
        refused(scaler.set_reducer(|_| Ok(())), Status::BadState, "update");
    }

    #[test]
    fn what_a_reducer_says_is_the_source_of_the_error() {
        let context = Context::cpu().unwrap();
        let (mut scaler, mut grads) = (scaler(&context), list(&context, 4));
        scaler
            .set_reducer(|_| Err("rank 3 has left".into()))
            .unwrap();
        let error = refused(scaler.check(&mut grads), Status::Callback, "all_reduce");
        assert_eq!(
            std::error::Error::source(&error).unwrap().to_string(),
            "rank 3 has left"
        );
        let again = refused(scaler.update(), Status::BadState, "");
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
}

mod state {
    use super::*;

    #[test]
    fn presets_and_defaults_are_the_librarys() {
        assert_eq!(
            ScalerOptions::preset(Preset::Torch).unwrap(),
            ScalerOptions::default()
        );
        let keras = ScalerOptions::preset(Preset::Keras).unwrap();
        assert!(keras.no_finite_guard && keras.fp32_products);
        let scaler = GradScaler::new(&Context::cpu().unwrap(), keras).unwrap();
        assert_eq!(scaler.options().unwrap(), keras);
    }

    #[test]
    fn every_option_of_a_scaler_arrives() {
        let options = ScalerOptions::default()
            .init_scale(8.0)
            .min_scale(2.0)
            .max_scale(64.0)
            .growth_interval(3)
            .growth_factor(4.0)
            .backoff_factor(0.25)
            .hysteresis(2)
            .hysteresis_refill(gradscaler::HysteresisRefill::Consecutive)
            .growth_timing(gradscaler::GrowthTiming::OneLater)
            .overflow_tolerance(0.125)
            .recovery_threshold(4.0)
            .recovery_interval(5)
            .floor_action(FloorAction::Report)
            .floor_patience(6)
            .history_capacity(7)
            .grow_on_equal(true)
            .floor_exclusive(true);
        let context = Context::cpu().unwrap();
        assert_eq!(
            GradScaler::new(&context, options)
                .unwrap()
                .options()
                .unwrap(),
            options
        );
        let disabled = GradScaler::new(&context, ScalerOptions::default().enabled(false)).unwrap();
        assert_eq!(disabled.scale().unwrap(), 1.0);
    }

    #[test]
    fn every_option_of_an_optimizer_arrives() {
        let context = Context::cpu().unwrap();
        for (options, field) in [
            (
                OptimizerOptions::sgd()
                    .momentum(0.5)
                    .dampening(0.25)
                    .maximize(true),
                OptimizerKind::Sgd,
            ),
            (
                OptimizerOptions::sgd().momentum(0.5).nesterov(true),
                OptimizerKind::Sgd,
            ),
            (
                OptimizerOptions::adam()
                    .lr(0.5)
                    .beta1(0.25)
                    .beta2(0.75)
                    .amsgrad(true),
                OptimizerKind::Adam,
            ),
            (
                OptimizerOptions::adamw()
                    .eps(1e-3)
                    .weight_decay(0.5)
                    .write_grads(true),
                OptimizerKind::AdamW,
            ),
            (
                OptimizerOptions::adagrad()
                    .lr_decay(0.5)
                    .initial_accumulator_value(2.0),
                OptimizerKind::Adagrad,
            ),
            (
                OptimizerOptions::lion().zero_grads(true),
                OptimizerKind::Lion,
            ),
            (OptimizerOptions::lamb(), OptimizerKind::Lamb),
        ] {
            let optimizer =
                Optimizer::new(options, (list(&context, 2), list(&context, 2))).unwrap();
            let found = optimizer.options(0).unwrap();
            assert_eq!(found.kind, field);
            // What was not given has a default now; what was given is as it was.
            let completed = OptimizerOptions {
                lr: options.lr.or(found.lr),
                beta1: options.beta1.or(found.beta1),
                beta2: options.beta2.or(found.beta2),
                eps: options.eps.or(found.eps),
                weight_decay: options.weight_decay.or(found.weight_decay),
                momentum: options.momentum.or(found.momentum),
                dampening: options.dampening.or(found.dampening),
                lr_decay: options.lr_decay.or(found.lr_decay),
                initial_accumulator_value: options
                    .initial_accumulator_value
                    .or(found.initial_accumulator_value),
                ..options
            };
            assert_eq!(found, completed);
        }
        assert_eq!(OptimizerOptions::default(), OptimizerOptions::adamw());
    }

    #[test]
    fn optimizers_are_saved_and_restored() {
        let context = Context::cpu().unwrap();
        let adam = || {
            Optimizer::new(
                OptimizerOptions::adam(),
                (list(&context, 3), list(&context, 3)),
            )
            .unwrap()
        };
        let (mut first, mut second) = (adam(), adam());
        fill(&mut first, 2.0);
        first.step().unwrap();
        second.load(&first.save().unwrap()).unwrap();
        assert_eq!(
            second.steps().unwrap(),
            Steps {
                applied: 1,
                skipped: 0
            }
        );
        assert_eq!(second.state_count().unwrap(), 2);
        let exp_avg = second.state(0).unwrap();
        assert_eq!(
            (exp_avg.name().as_str(), exp_avg.len().unwrap()),
            ("exp_avg", 1)
        );
        assert_eq!(exp_avg.dtype(0).unwrap(), DType::Fp32);
        assert_eq!(
            exp_avg.get::<f32>(0).unwrap(),
            first.state(0).unwrap().get::<f32>(0).unwrap()
        );
        assert!(exp_avg.get::<f32>(0).unwrap()[0] > 0.19);
        second.state_mut(0).unwrap().get_mut::<f32>(0).unwrap()[1] = 7.0;
        assert_eq!(second.state(0).unwrap().get::<f32>(0).unwrap()[1], 7.0);
        refused(second.load(&[0; 100]), Status::InvalidArgument, "");
    }

    #[test]
    fn state_of_ones_own_is_used() {
        let context = Context::cpu().unwrap();
        let (params, grads) = (
            list(&context, 2),
            TensorList::new(&context, [vec![1f32; 2]]).unwrap(),
        );
        let state = vec![TensorList::new(&context, [vec![10f32; 2]]).unwrap()];
        let lists = Lists {
            params,
            grads,
            model_copy: None,
            state,
        };
        let mut optimizer =
            Optimizer::new(OptimizerOptions::sgd().lr(1.0).momentum(0.5), lists).unwrap();
        optimizer
            .set_steps(Steps {
                applied: 1,
                skipped: 0,
            })
            .unwrap();
        optimizer.step().unwrap();
        assert_eq!(optimizer.state(0).unwrap().get::<f32>(0).unwrap(), [6.0; 2]);
        assert_eq!(optimizer.params().get::<f32>(0).unwrap(), [-6.0; 2]);
    }

    #[test]
    fn groups_have_hyper_parameters_of_their_own() {
        let context = Context::cpu().unwrap();
        let two = || TensorList::new(&context, [vec![1f32; 1], vec![1f32; 1]]).unwrap();
        let mut optimizer =
            Optimizer::new(OptimizerOptions::sgd().lr(1.0), (two(), two())).unwrap();
        let group = optimizer
            .add_group(1..2, &OptimizerOptions::sgd().lr(0.5))
            .unwrap();
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
        second
            .set_state(&ScalerState::from_bytes(&bytes).unwrap())
            .unwrap();
        assert_eq!(
            (second.scale().unwrap(), second.state().unwrap().skipped),
            (512.0, 1)
        );
        refused(
            ScalerState::from_bytes(&bytes[1..]),
            Status::InvalidArgument,
            "72",
        );
        refused(
            ScalerState::from_bytes(&[0; 72]),
            Status::InvalidArgument,
            "not the state",
        );
    }

    #[test]
    fn reports_are_read_into_memory_of_the_callers() {
        let context = Context::cpu().unwrap();
        let (mut scaler, mut grads) = (scaler(&context), list(&context, 4));
        grads.get_mut::<f32>(0).unwrap()[2] = f32::NAN;
        scaler.check(&mut grads).unwrap();
        let mut raw = std::mem::MaybeUninit::zeroed();
        let report = unsafe {
            scaler
                .read_report_async(Some(&grads), raw.as_mut_ptr())
                .unwrap();
            gradscaler::Report::from(raw.assume_init_ref())
        };
        assert_eq!(
            (report.first_tensor, report.first_element, report.nan_count),
            (Some(0), Some(2), 1)
        );
        assert_eq!(
            report.grad_norm.to_bits(),
            scaler.report_of(&grads).unwrap().grad_norm.to_bits()
        );
        let found = scaler.device_state_of(&grads).unwrap();
        assert_eq!(unsafe { *found.found_inf }, 1.0);
        assert!(scaler.device_state().unwrap().found_inf.is_null());
    }
}

mod library {
    use super::*;

    #[test]
    fn the_stateless_operations() {
        let context = Context::cpu().unwrap();
        let mut bits = vec![0u16; 3];
        ops::cast(&context, &[1f32, -2.0, 65504.0], Tensor::fp16(&mut bits)).unwrap();
        assert_eq!(bits, [0x3c00, 0xc000, 0x7bff]);
        let mut halves = [0f32; 3];
        ops::scale(&context, TensorRef::fp16(&bits), &mut halves, 0.5).unwrap();
        assert_eq!(halves, [0.5, -1.0, 32752.0]);
        ops::axpby(&context, 2.0, &[1f32, 1.0, 1.0], 0.0, &mut halves).unwrap();
        assert_eq!(halves, [2.0; 3]);
        let tensors = [TensorRef::from(&[3f32]), TensorRef::from(&[4f64])];
        assert_eq!(ops::norm(&context, &tensors, Norm::L2).unwrap(), 5.0);
        assert_eq!(
            ops::tensor_norms(&context, &tensors, Norm::Inf).unwrap(),
            (4.0, vec![3.0, 4.0])
        );
        let mut gradients = [8f32, f32::INFINITY];
        assert!(ops::unscale_check(&context, &mut [Tensor::from(&mut gradients)], 0.5).unwrap());
        assert_eq!(gradients, [4.0, f32::INFINITY]);
        let (mut scale, mut tracker) = (8f32, 1);
        ops::update_scale(&context, &mut scale, &mut tracker, false, 2.0, 0.5, 2).unwrap();
        assert_eq!((scale, tracker), (16.0, 0));
        ops::update_scale(&context, &mut scale, &mut tracker, true, 2.0, 0.5, 2).unwrap();
        assert_eq!((scale, tracker), (8.0, 0));
        let mut scaled = [0f32; 2];
        scaler(&context)
            .scale_into(&[1f32, 2.0], &mut scaled)
            .unwrap();
        assert_eq!(scaled, [1024.0, 2048.0]);
    }

    #[test]
    fn tensors_are_diagnosed() {
        let context = Context::cpu().unwrap();
        let list = TensorList::new(
            &context,
            [vec![1f32, -4.0, 0.0, f32::NAN, f32::INFINITY, 1e-40]],
        )
        .unwrap();
        let found = &list.diagnose().unwrap()[0];
        assert_eq!(
            (
                found.count,
                found.nan_count,
                found.inf_count,
                found.zero_count
            ),
            (6, 1, 1, 1)
        );
        assert_eq!(
            (found.subnormal_count, found.first_nonfinite, found.amax),
            (1, Some(3), 4.0)
        );
        let bin = |exponent: i32| found.histogram[(exponent - gradscaler::EXPONENT_MIN) as usize];
        assert_eq!(
            (bin(0), bin(2), found.histogram.iter().sum::<i64>()),
            (1, 1, 3)
        );
        let recommended = gradscaler::recommend_scale(&found.histogram, 1.0, DType::Fp16).unwrap();
        assert_eq!(recommended.scale.log2().fract(), 0.0);
        assert!(recommended.flushed > 0.3);
    }

    #[test]
    fn the_library_and_its_devices_are_known() {
        assert_eq!(gradscaler::version().unwrap(), env!("CARGO_PKG_VERSION"));
        assert!(gradscaler::build_info().unwrap().contains("gradscaler"));
        let cpu = gradscaler::device_info(gradscaler::DeviceType::Cpu, 0).unwrap();
        assert!(cpu.units > 0 && cpu.cpu_target.is_some() && !cpu.name.is_empty());
        let context = Context::cpu().unwrap();
        assert_eq!(context.device_index().unwrap(), 0);
        assert_eq!(context.cpu_target().unwrap(), cpu.cpu_target.unwrap());
        if gradscaler::device_count(gradscaler::DeviceType::Cuda).unwrap() == 0 {
            refused(Context::cuda(0), Status::Unavailable, "CUDA");
        }
    }

    /// Functions that the crate does not call: what they tell it has of its own.
    const NOT_CALLED: [&str; 6] = [
        "context_set_log", // the log is a closure that `set_log` replaces
        "error_clear",
        "library_get_abi_version",
        "optimizer_get_grads",
        "status_get_name",
        "tensor_list_get_name",
    ];

    #[test]
    fn every_function_of_the_table_is_called() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
        let table = read(crates.join("gradscaler-sys/src/bindings.rs"));
        let sources = std::fs::read_dir(crates.join("gradscaler/src")).unwrap();
        let code: String = sources.map(|entry| read(entry.unwrap().path())).collect();
        let functions = table
            .lines()
            .filter_map(|line| line.strip_prefix("    pub ")?.split_once(": unsafe extern"))
            .map(|(name, _)| name);
        let mut missing: Vec<&str> = functions
            .filter(|name| !code.contains(&format!(".{}", name)))
            .collect();
        missing.sort_unstable();
        assert_eq!(missing, NOT_CALLED);
    }

    #[test]
    #[cfg(not(feature = "link"))]
    fn another_library_cannot_be_chosen_later() {
        Context::cpu().unwrap();
        refused(
            gradscaler::load("/nowhere/libgradscaler.so.1"),
            Status::Unavailable,
            "/nowhere/libgradscaler.so.1",
        );
        // The same file again is no other library.
        if let Some(path) = std::env::var_os("GRADSCALER_LIBRARY") {
            gradscaler::load(path).unwrap();
        }
    }
}

#[cfg(feature = "half")]
mod with_half {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn halves_are_elements() {
        let context = Context::cpu().unwrap();
        let one = f16::from_f32(1.0);
        let grads = TensorList::new(&context, [vec![one; 3]]).unwrap();
        assert_eq!(grads.tensor(0).unwrap().dtype(), DType::Fp16);
        let lists = Lists {
            params: list(&context, 3),
            grads,
            model_copy: Some(TensorList::new(&context, [vec![bf16::ZERO; 3]]).unwrap()),
            state: vec![],
        };
        let mut optimizer = Optimizer::new(OptimizerOptions::sgd().lr(0.5), lists).unwrap();
        optimizer.step().unwrap();
        assert_eq!(
            optimizer.model_copy().unwrap().get::<bf16>(0).unwrap(),
            [bf16::from_f32(-0.5); 3]
        );
        refused(
            optimizer.grads().get::<bf16>(0),
            Status::InvalidArgument,
            "Fp16, not Bf16",
        );
    }
}
