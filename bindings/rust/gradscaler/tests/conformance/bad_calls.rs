// SPDX-License-Identifier: Apache-2.0
// The table of bad input: each row is refused with its status and a sentence that says why, and has changed nothing.
// Rows that Rust cannot express, because its types have no null and ops take one pair of tensors, are counted.
use crate::files;
use crate::json::Json;
use gradscaler::{
    device_info, ops, Context, ContextOptions, DType, DeviceType, GradScaler, Lists, Norm,
    Optimizer, OptimizerOptions, Result, ScalerOptions, ScalerState, Steps, Tensor, TensorList,
    TensorRef,
};
use std::ffi::c_void;
use std::ptr;

/// A list of parameters and one of gradients, SGD of learning rate 1 over them, and a scaler.
struct World {
    context: Context,
    optimizer: Optimizer<'static>,
    scaler: GradScaler,
    /// Memory for `make_list` and its like. Not a tensor's: the same bytes are in several.
    memory: Box<[u64; 8]>,
}

impl World {
    fn new() -> Self {
        let context = Context::new(ContextOptions::default().num_threads(1)).unwrap();
        let list = || TensorList::new(&context, [vec![0f32; 4]]).unwrap();
        let optimizer = Optimizer::new(OptimizerOptions::sgd().lr(1.0), (list(), list())).unwrap();
        let scaler =
            GradScaler::new(&context, ScalerOptions::default().init_scale(1024.0)).unwrap();
        World {
            context,
            optimizer,
            scaler,
            memory: Box::new([0; 8]),
        }
    }

    fn weight(&self) -> f32 {
        self.optimizer.params().get::<f32>(0).unwrap()[3]
    }

    /// A refused call has changed nothing.
    fn works_as_before(&mut self, weight: f32) {
        assert_eq!(self.scaler.scale().unwrap(), 1024.0);
        self.scaler.discard_all().unwrap();
        self.optimizer
            .grads_mut()
            .get_mut::<f32>(0)
            .unwrap()
            .fill(1024.0);
        self.scaler.step(&mut self.optimizer).unwrap();
        self.scaler.update().unwrap();
        assert_eq!(self.weight(), weight - 1.0);
        assert_eq!(self.scaler.report().unwrap().updates, 1);
    }

    fn address(&mut self, tensor: &Json) -> (*mut c_void, usize, DType) {
        let data = match tensor.at("at") {
            Json::Text(_) => ptr::null_mut(),
            at => self
                .memory
                .as_mut_ptr()
                .cast::<u8>()
                .wrapping_add(at.index())
                .cast(),
        };
        (
            data,
            tensor.at("count").index(),
            tensor.get("dtype").map_or(DType::Fp32, files::dtype),
        )
    }

    fn tensors(&mut self, list: &Json) -> Vec<Tensor<'static>> {
        let addresses: Vec<_> = list
            .array()
            .iter()
            .map(|tensor| self.address(tensor))
            .collect();
        // Nothing reads or writes what the library is to refuse.
        addresses
            .into_iter()
            .map(|(at, count, dtype)| unsafe { Tensor::from_raw_parts(at, count, dtype) })
            .collect()
    }

    fn list(&self, counts: &Json) -> TensorList<'static> {
        TensorList::new(
            &self.context,
            counts.array().iter().map(|count| vec![0f32; count.index()]),
        )
        .unwrap()
    }

    fn make(&mut self, call: &str, with: &Json) -> Result<()> {
        match call {
            "make_context" => {
                let threads = with.at("num_threads").index();
                Context::new(ContextOptions::default().num_threads(threads)).map(drop)
            }
            "device_info" => device_info(DeviceType::Cpu, with.at("index").index()).map(drop),
            "make_scaler" => GradScaler::new(
                &self.context,
                files::options(with, ScalerOptions::default()),
            )
            .map(drop),
            "make_list" => {
                let tensors = self.tensors(with.at("tensors"));
                TensorList::new(&self.context, tensors).map(drop)
            }
            "list_get" => self
                .optimizer
                .grads()
                .get::<f32>(with.at("index").index())
                .map(drop),
            "set_tensors" => {
                let tensors = self.tensors(with.at("tensors"));
                self.optimizer.grads_mut().set_tensors(tensors)
            }
            "ops_cast" => {
                let dst = self.tensors(with.at("dst")).remove(0);
                let (at, count, dtype) = self.address(&with.at("src").array()[0]);
                ops::cast(
                    &self.context,
                    unsafe { TensorRef::from_raw_parts(at, count, dtype) },
                    dst,
                )
            }
            "ops_update_scale" => ops::update_scale(
                &self.context,
                &mut 0.0,
                &mut 0,
                false,
                with.at("growth_factor").number(),
                with.at("backoff_factor").number(),
                with.at("growth_interval").integer() as i32,
            ),
            _ => self
                .on_scaler(call, with)
                .unwrap_or_else(|| self.on_optimizer(call, with)),
        }
    }

    fn on_scaler(&mut self, call: &str, with: &Json) -> Option<Result<()>> {
        let (scaler, grads) = (&mut self.scaler, &mut self.optimizer);
        Some(match call {
            "set_options" => scaler.set_options(&files::options(with, scaler.options().unwrap())),
            "set_growth_factor" => {
                let options = scaler
                    .options()
                    .unwrap()
                    .growth_factor(with.at("value").number());
                scaler.set_options(&options)
            }
            "set_backoff_factor" => {
                let options = scaler
                    .options()
                    .unwrap()
                    .backoff_factor(with.at("value").number());
                scaler.set_options(&options)
            }
            "set_growth_interval" => {
                let options = scaler
                    .options()
                    .unwrap()
                    .growth_interval(with.at("value").integer() as i32);
                scaler.set_options(&options)
            }
            "set_scale" => scaler.set_scale(with.at("scale").number() as f32),
            "set_state" => scaler.set_state(&state(scaler.state().unwrap(), with)),
            "unscale" => scaler.unscale(grads),
            "check" => scaler.check(grads),
            "check_range" => {
                let first = with.at("first").index();
                scaler.check_range(grads, first..first.wrapping_add(with.at("count").index()))
            }
            "clip_norm" => scaler.clip_grad_norm(grads, with.at("max_norm").number(), Norm::L2),
            "clip_value" => scaler.clip_grad_value(grads, with.at("value").number()),
            "step" => scaler.step(grads),
            "step_and_update" => scaler.step_and_update(grads),
            "should_step" => scaler.should_step(grads).map(drop),
            "update" => scaler.update(),
            "report" => scaler.report_of(grads).map(drop),
            _ => return None,
        })
    }

    fn on_optimizer(&mut self, call: &str, with: &Json) -> Result<()> {
        let one = [Json::Number(4.0)];
        let default = Json::Array(one.to_vec());
        let lists = Lists {
            params: self.list(&default),
            grads: self.list(with.get("grads").unwrap_or(&default)),
            model_copy: with.get("model_copy").map(|counts| self.list(counts)),
            state: with.get("state").map_or(vec![], |state| {
                state.array().iter().map(|l| self.list(l)).collect()
            }),
        };
        let optimizer = &mut self.optimizer;
        match call {
            "make_optimizer" => Optimizer::new(optimizer_options(with), lists).map(drop),
            "add_group" => {
                let (first, options) = (with.at("first").index(), optimizer.options(0).unwrap());
                optimizer
                    .add_group(first..first + with.at("count").index(), &options)
                    .map(drop)
            }
            "set_lr" => optimizer.set_lr(with.at("group").index(), with.at("lr").number()),
            "set_steps" => {
                let (applied, skipped) = (
                    with.at("applied").integer() as u64,
                    with.at("skipped").integer() as u64,
                );
                optimizer.set_steps(Steps { applied, skipped })
            }
            "state_tensor" => optimizer.state(with.at("slot").index()).map(drop),
            "save" => optimizer.save_to(&mut vec![0; with.at("size").index()]),
            "load" => optimizer.load(&vec![0; with.at("size").index()]),
            other => panic!("unknown call {}", other),
        }
    }
}

fn optimizer_options(with: &Json) -> OptimizerOptions {
    let mut o = OptimizerOptions::new(files::kind(with.at("kind")));
    for (key, value) in with.object() {
        match key.as_str() {
            "kind" | "grads" | "model_copy" | "state" => {}
            "lr" => o = o.lr(value.number()),
            "momentum" => o = o.momentum(value.number()),
            "nesterov" => o = o.nesterov(value.integer() != 0),
            "beta1" => o = o.beta1(value.number()),
            "beta2" => o = o.beta2(value.number()),
            "eps" => o = o.eps(value.number()),
            "weight_decay" => o = o.weight_decay(value.number()),
            "lr_decay" => o = o.lr_decay(value.number()),
            other => panic!("unknown option {}", other),
        }
    }
    o
}

fn state(mut state: ScalerState, with: &Json) -> ScalerState {
    for (key, value) in with.object() {
        match key.as_str() {
            "scale" => state.scale = value.number() as f32,
            "growth_factor" => state.growth_factor = value.number(),
            "backoff_factor" => state.backoff_factor = value.number(),
            "growth_interval" => state.growth_interval = value.integer() as i32,
            "growth_tracker" => state.growth_tracker = value.integer() as i32,
            "skipped" => state.skipped = value.integer(),
            other => panic!("unknown field {}", other),
        }
    }
    state
}

#[test]
fn every_row_is_refused_and_changes_nothing() {
    let file = files::read(&files::path_of("bad_input.json"));
    assert_eq!(file.at("format").integer(), 1);
    let (mut refused, mut not_in_rust) = (0, 0);
    for row in file.at("rows").array() {
        if row.get("null").is_some() || row.at("says").text() == "different numbers" {
            not_in_rust += 1;
            continue;
        }
        let mut world = World::new();
        let nothing = Json::Object(vec![]);
        for earlier in row.get("first").map_or(&[][..], Json::array) {
            world.make(earlier.text(), &nothing).unwrap();
        }
        let before = world.weight();
        let error = world
            .make(row.at("call").text(), row.get("with").unwrap_or(&nothing))
            .expect_err("refused");
        assert_eq!(
            error.status(),
            files::status(row.at("status")),
            "{:?}: {}",
            row,
            error
        );
        assert!(
            error.message().contains(row.at("says").text()),
            "{:?}: {}",
            row,
            error
        );
        world.works_as_before(before);
        refused += 1;
    }
    println!("{} rows, {} that Rust cannot express", refused, not_in_rust);
    assert!(refused > 90 && not_in_rust < 12);
}
