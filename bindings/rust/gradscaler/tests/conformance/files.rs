// SPDX-License-Identifier: Apache-2.0
// Where the files are, and what their words mean. Unknown words are panics, so that a misspelt one cannot pass unnoticed.
use crate::json::Json;
use gradscaler::{
    DType, FloorAction, GrowthTiming, HysteresisRefill, Norm, OptimizerKind, Preset, ScalerOptions,
    Status,
};
use std::path::{Path, PathBuf};
use std::{env, fs};

pub fn path_of(name: &str) -> PathBuf {
    let folder = env::var_os("GRADSCALER_CONFORMANCE")
        .expect("GRADSCALER_CONFORMANCE: the folder conformance/ of a build");
    Path::new(&folder).join(name)
}

pub fn read(path: &Path) -> Json {
    Json::parse(
        &fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {}", path.display(), error)),
    )
}

/// The value whose name, in the words of the C header without prefix, is `word`: by what Rust prints of it.
fn find<T: TryFrom<i32> + std::fmt::Debug>(word: &str) -> T {
    let wanted = word.replace('_', "");
    let mut values = (0..32).filter_map(|code| T::try_from(code).ok());
    values
        .find(|value| format!("{:?}", value).eq_ignore_ascii_case(&wanted))
        .unwrap_or_else(|| panic!("unknown word {}", word))
}

pub fn status(word: &Json) -> Status {
    find(word.text())
}

pub fn dtype(word: &Json) -> DType {
    find(word.text())
}

pub fn norm(word: &Json) -> Norm {
    find(word.text())
}

pub fn kind(word: &Json) -> OptimizerKind {
    find(word.text())
}

/// Options over those that are given, or over a preset that the file names.
pub fn options(values: &Json, mut o: ScalerOptions) -> ScalerOptions {
    if let Some(preset) = values.get("preset") {
        o = ScalerOptions::preset(find::<Preset>(preset.text())).unwrap();
    }
    for (key, value) in values.object() {
        match key.as_str() {
            "preset" => {}
            "init_scale" => o.init_scale = value.number() as f32,
            "min_scale" => o.min_scale = value.number() as f32,
            "max_scale" => o.max_scale = value.number() as f32,
            "growth_interval" => o.growth_interval = value.integer() as i32,
            "growth_factor" => o.growth_factor = value.number(),
            "backoff_factor" => o.backoff_factor = value.number(),
            "enabled" => o.enabled = value.integer() != 0,
            "hysteresis" => o.hysteresis = value.integer() as i32,
            "hysteresis_refill" => o.hysteresis_refill = find::<HysteresisRefill>(value.text()),
            "growth_timing" => o.growth_timing = find::<GrowthTiming>(value.text()),
            "overflow_tolerance" => o.overflow_tolerance = value.number(),
            "recovery_threshold" => o.recovery_threshold = value.number() as f32,
            "recovery_interval" => o.recovery_interval = value.integer() as i32,
            "floor_action" => o.floor_action = find::<FloorAction>(value.text()),
            "floor_patience" => o.floor_patience = value.integer() as i32,
            "history_capacity" => o.history_capacity = value.integer() as i32,
            "flags" => {
                let words: Vec<&str> = value.array().iter().map(Json::text).collect();
                o.grow_on_equal = words.contains(&"grow_on_equal");
                o.no_finite_guard = words.contains(&"no_finite_guard");
                o.floor_exclusive = words.contains(&"floor_exclusive");
                o.fp32_products = words.contains(&"fp32_products");
            }
            other => panic!("unknown option {}", other),
        }
    }
    o
}
