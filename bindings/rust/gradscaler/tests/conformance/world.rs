// SPDX-License-Identifier: Apache-2.0
// What a scenario file acts on: one scaler, and for each list of gradients its parameters and an SGD optimizer with
// learning rate 1. The format is described in tests/conformance/README.md.
use crate::files;
use crate::json::Json;
use gradscaler::{
    ops, Context, ContextOptions, DType, GradScaler, Optimizer, OptimizerOptions, Report, Result,
    ScalerOptions, ScalerState, Status, Tensor, TensorList, TensorRef,
};
use std::collections::HashMap;

pub struct World {
    context: Context,
    options: Json,
    scaler: GradScaler,
    lists: Vec<(String, Optimizer<'static>)>,
    saved: HashMap<String, ScalerState>,
    apply: bool,
}

fn zeros(dtype: DType, count: usize) -> Tensor<'static> {
    match dtype {
        DType::Fp16 => Tensor::fp16(vec![0; count]),
        DType::Bf16 => Tensor::bf16(vec![0; count]),
        DType::Fp32 => Tensor::from(vec![0f32; count]),
        DType::Fp64 => Tensor::from(vec![0f64; count]),
        other => panic!("no tensors of {:?}", other),
    }
}

impl World {
    pub fn new(file: &Json) -> Self {
        let context = Context::new(ContextOptions::default().num_threads(1)).unwrap();
        let options = file.at("scaler").clone();
        let scaler =
            GradScaler::new(&context, files::options(&options, ScalerOptions::default())).unwrap();
        let mut world = World {
            context,
            options,
            scaler,
            lists: vec![],
            saved: HashMap::new(),
            apply: false,
        };
        match file.get("lists") {
            None => world.add("model", DType::Fp32, &[4]),
            Some(lists) => {
                for (name, list) in lists.object() {
                    let counts: Vec<usize> =
                        list.at("counts").array().iter().map(Json::index).collect();
                    world.add(name, files::dtype(list.at("dtype")), &counts);
                }
            }
        }
        world
    }

    fn add(&mut self, name: &str, dtype: DType, counts: &[usize]) {
        let list = |dtype| {
            TensorList::new(
                &self.context,
                counts.iter().map(|&count| zeros(dtype, count)),
            )
            .unwrap()
        };
        let lists = (list(DType::Fp32), list(dtype));
        self.lists.push((
            name.to_owned(),
            Optimizer::new(OptimizerOptions::sgd().lr(1.0), lists).unwrap(),
        ));
    }

    /// Where in `lists` the list of an event is.
    fn index(&self, event: &Json) -> usize {
        match event.get("list") {
            Some(name) => self.position(name.text()),
            None => {
                assert_eq!(self.lists.len(), 1, "missing list");
                0
            }
        }
    }

    fn position(&self, name: &str) -> usize {
        self.lists
            .iter()
            .position(|(own, _)| own == name)
            .unwrap_or_else(|| panic!("no list {}", name))
    }

    pub fn act(&mut self, event: &Json, place: &str) {
        let status = self.perform(event).err().map(|error| error.status());
        let expected = event
            .get("status")
            .filter(|word| word.text() != "ok")
            .map(files::status);
        assert_eq!(status, expected, "{}", place);
        if let Some(expect) = event.get("expect") {
            for (key, value) in expect.object() {
                self.judge(key, value, &format!("{}: {}", place, key));
            }
        }
    }

    fn perform(&mut self, event: &Json) -> Result<()> {
        match event.at("do").text() {
            "update" => self.scaler.update(),
            "set_scale" => self.scaler.set_scale(event.at("scale").number() as f32),
            "set_options" => {
                let options = files::options(event.at("options"), self.scaler.options()?);
                self.scaler.set_options(&options)
            }
            "save" => {
                let bytes = self.scaler.state()?.to_bytes();
                self.saved.insert(
                    event.at("as").text().to_owned(),
                    ScalerState::from_bytes(&bytes)?,
                );
                Ok(())
            }
            "restore" => self.scaler.set_state(&self.saved[event.at("from").text()]),
            "new_scaler" => {
                let options = event.get("scaler").unwrap_or(&self.options);
                self.scaler = GradScaler::new(
                    &self.context,
                    files::options(options, ScalerOptions::default()),
                )?;
                Ok(())
            }
            "run" => self.run(event.at("pattern").text(), event.at("scales").array()),
            "discard" if event.get("list").is_none() => self.scaler.discard_all(),
            action => self.perform_on(self.index(event), action, event),
        }
    }

    fn perform_on(&mut self, list: usize, action: &str, event: &Json) -> Result<()> {
        let scale = self.scaler.scale()?;
        let (scaler, grads) = (&mut self.scaler, &mut self.lists[list].1);
        match action {
            "fill" => {
                let value = event.get("value").map(Json::number);
                self.fill(
                    list,
                    value.unwrap_or_else(|| event.at("true_value").number() * f64::from(scale)),
                );
                Ok(())
            }
            "plant" => {
                let mut tensors = grads.grads_mut();
                let mut tensors = tensors.tensors_mut();
                let element = event.at("element").index();
                let one = tensors[event.at("tensor").index()].slice(element..element + 1);
                ops::cast(&self.context, &[event.at("value").number()], one)
            }
            "unscale" => scaler.unscale(grads),
            "check" => scaler.check(grads),
            "check_range" => {
                let first = event.at("first").index();
                scaler.check_range(grads, first..first + event.at("count").index())
            }
            "clip_norm" => scaler.clip_grad_norm(
                grads,
                event.at("max_norm").number(),
                files::norm(event.at("norm")),
            ),
            "clip_value" => scaler.clip_grad_value(grads, event.at("value").number()),
            "step" => scaler.step(grads),
            "step_and_update" => scaler.step_and_update(grads),
            "should_step" => {
                self.apply = scaler.should_step(grads)?;
                Ok(())
            }
            "discard" => scaler.discard(grads),
            other => panic!("unknown event {}", other),
        }
    }

    fn fill(&mut self, list: usize, value: f64) {
        for tensor in self.lists[list].1.grads_mut().tensors_mut() {
            let values = vec![value; tensor.len()];
            ops::cast(&self.context, &values, tensor).unwrap();
        }
    }

    fn run(&mut self, pattern: &str, scales: &[Json]) -> Result<()> {
        assert_eq!(scales.len(), pattern.len());
        for (i, letter) in pattern.chars().enumerate() {
            let scale = self.scaler.scale()?;
            for list in 0..self.lists.len() {
                self.fill(list, f64::from(scale));
            }
            if letter == 'x' {
                let mut grads = self.lists[0].1.grads_mut();
                ops::cast(
                    &self.context,
                    &[f64::INFINITY],
                    grads.tensors_mut()[0].slice(..1),
                )?;
            }
            for (_, optimizer) in &mut self.lists {
                self.scaler.step(optimizer)?;
            }
            self.scaler.update()?;
            assert_eq!(
                self.scaler.scale()?,
                scales[i].number() as f32,
                "letter {} of {}",
                i,
                pattern
            );
        }
        Ok(())
    }

    /// The report, and whether it comes with an error.
    fn report(&self, list: Option<usize>) -> (Report, bool) {
        let report = match list {
            None => self.scaler.report(),
            Some(list) => self.scaler.report_of(&self.lists[list].1),
        };
        match report {
            Ok(report) => (report, false),
            Err(error) => {
                assert_eq!(error.status(), Status::ScaleFloor, "{}", error);
                (error.report().expect("a report").clone(), true)
            }
        }
    }

    fn judge(&self, key: &str, value: &Json, place: &str) {
        let report = || self.report(None).0;
        match key {
            "scale" => assert_eq!(
                self.scaler.scale().unwrap(),
                value.number() as f32,
                "{}",
                place
            ),
            "inv_scale" => {
                // On the CPU device memory is the host's.
                let inv_scale = unsafe { *self.scaler.device_state().unwrap().inv_scale };
                assert_eq!(inv_scale, value.number() as f32, "{}", place);
            }
            "growth_tracker" => assert_eq!(
                i64::from(report().growth_tracker),
                value.integer(),
                "{}",
                place
            ),
            "hysteresis_tracker" => assert_eq!(
                i64::from(report().hysteresis_tracker),
                value.integer(),
                "{}",
                place
            ),
            "consecutive_skips" => assert_eq!(
                i64::from(report().consecutive_skips),
                value.integer(),
                "{}",
                place
            ),
            "updates" => assert_eq!(report().updates as i64, value.integer(), "{}", place),
            "skipped" => assert_eq!(report().skipped as i64, value.integer(), "{}", place),
            "overflow" => assert_eq!(report().overflow, value.bool(), "{}", place),
            "at_floor" => assert_eq!(report().at_floor, value.bool(), "{}", place),
            "floor_error" => assert_eq!(self.report(None).1, value.bool(), "{}", place),
            "apply" => assert_eq!(self.apply, value.integer() != 0, "{}", place),
            "history" => self.judge_history(value.array(), place),
            _ => {
                for (name, value) in value.object() {
                    self.judge_list(
                        key,
                        self.position(name),
                        value,
                        &format!("{}: {}", place, name),
                    );
                }
            }
        }
    }

    fn judge_list(&self, key: &str, list: usize, value: &Json, place: &str) {
        let optimizer = &self.lists[list].1;
        match key {
            "params" => self.judge_elements(optimizer.params(), value, place),
            "grads" => self.judge_elements(optimizer.grads(), value, place),
            "steps" => {
                let steps = optimizer.steps().unwrap();
                let expected: Vec<i64> = value.array().iter().map(Json::integer).collect();
                assert_eq!(
                    [steps.applied as i64, steps.skipped as i64],
                    expected[..],
                    "{}",
                    place
                );
            }
            "report" => {
                let (report, _) = self.report(Some(list));
                for (field, value) in value.object() {
                    judge_report(&report, field, value, &format!("{}: {}", place, field));
                }
            }
            other => panic!("unknown expectation {}", other),
        }
    }

    fn judge_elements(&self, list: &TensorList<'_>, value: &Json, place: &str) {
        let mut all = Vec::new();
        for i in 0..list.len() {
            let tensor = list.tensor(i).unwrap();
            let mut exact = vec![0f64; tensor.len()];
            ops::cast(&self.context, TensorRef::from(tensor), &mut exact).unwrap();
            all.extend(exact);
        }
        match value {
            Json::Array(each) => {
                assert_eq!(all.len(), each.len(), "{}", place);
                all.iter()
                    .zip(each)
                    .for_each(|(got, expected)| near(expected.number(), *got, place));
            }
            one => all.iter().for_each(|got| near(one.number(), *got, place)),
        }
    }

    fn judge_history(&self, expected: &[Json], place: &str) {
        let history = self.scaler.history(expected.len()).unwrap();
        assert_eq!(history.len(), expected.len(), "{}", place);
        for (entry, expected) in history.iter().zip(expected) {
            let expected = expected.array();
            assert_eq!(entry.update as i64, expected[0].integer(), "{}", place);
            assert_eq!(entry.scale, expected[1].number() as f32, "{}", place);
            assert_eq!(entry.overflow, expected[2].integer() != 0, "{}", place);
        }
    }
}

fn judge_report(report: &Report, field: &str, value: &Json, place: &str) {
    let index = |index: Option<usize>| index.map_or(-1, |index| index as i64);
    match field {
        "overflow" => assert_eq!(report.overflow, value.bool(), "{}", place),
        "nonfinite" => assert_eq!(report.nonfinite_count as i64, value.integer(), "{}", place),
        "inf" => assert_eq!(report.inf_count as i64, value.integer(), "{}", place),
        "nan" => assert_eq!(report.nan_count as i64, value.integer(), "{}", place),
        "first_tensor" => assert_eq!(index(report.first_tensor), value.integer(), "{}", place),
        "first_element" => assert_eq!(index(report.first_element), value.integer(), "{}", place),
        "norm" => near(value.number(), report.grad_norm, place),
        "amax" => near(value.number(), report.grad_amax, place),
        other => panic!("unknown field of a report {}", other),
    }
}

fn near(expected: f64, got: f64, place: &str) {
    let same = if expected.is_finite() {
        (got - expected).abs() <= 1e-6 * expected.abs()
    } else {
        got == expected || got.is_nan() && expected.is_nan()
    };
    assert!(same, "{}: {} instead of {}", place, got, expected);
}
