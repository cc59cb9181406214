// SPDX-License-Identifier: Apache-2.0
// The golden trajectories of other systems: every update of every recorded run must leave the same fp32 bits.
use crate::files;
use crate::json::Json;
use gradscaler::{Context, ContextOptions, GradScaler, ScalerOptions, TensorList};

/// A power of two is written by its exponent, anything else by its bits.
fn bits(scale: &Json) -> u32 {
    match scale {
        Json::Text(hex) => u32::from_str_radix(hex, 16).expect(hex),
        exponent => (exponent.number().exp2() as f32).to_bits(),
    }
}

fn replay(context: &Context, preset: &Json, run: &Json) -> usize {
    let place = format!("{:?}, seed {}", run.at("case"), run.at("seed").integer());
    let preset = Json::Object(vec![("preset".to_owned(), preset.clone())]);
    let options = files::options(
        run.at("options"),
        files::options(&preset, ScalerOptions::default()),
    );
    let mut grads = TensorList::new(context, [vec![0.0f32]]).unwrap();
    let mut scaler = GradScaler::new(context, options).unwrap();
    let mut scales = run.at("scale").array().iter();
    let mut held = run.at("held").array().iter();
    let (mut update, mut left, mut expected) = (0, 0, 0);
    for (i, length) in run.at("overflow").array().iter().enumerate() {
        for _ in 0..length.index() {
            if left == 0 {
                expected = bits(scales.next().expect(&place));
                left = held.next().expect(&place).index();
            }
            left -= 1;
            grads.get_mut::<f32>(0).unwrap()[0] = if i % 2 == 1 { f32::INFINITY } else { 1.0 };
            scaler.check(&mut grads).unwrap();
            scaler.update().unwrap();
            let found = scaler.scale().unwrap().to_bits();
            assert_eq!(
                found, expected,
                "{}: after update {} the bits are {:08x}",
                place, update, found
            );
            update += 1;
        }
    }
    assert_eq!(
        (scales.next(), held.next(), left),
        (None, None, 0),
        "{}: the run is shorter than its trajectory",
        place
    );
    update
}

#[test]
fn recorded_systems_are_replayed_to_the_last_bit() {
    let context = Context::new(ContextOptions::default().num_threads(1)).unwrap();
    let folder = std::fs::read_dir(files::path_of("goldens")).expect("goldens");
    let paths: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    assert!(!paths.is_empty());
    for path in paths {
        let file = files::read(&path);
        let updates: usize = file
            .at("runs")
            .array()
            .iter()
            .map(|run| replay(&context, file.at("preset"), run))
            .sum();
        assert!(
            updates > 0,
            "{}: a golden without runs proves nothing",
            path.display()
        );
        println!(
            "{}: {} updates",
            path.file_stem().unwrap().to_string_lossy(),
            updates
        );
    }
}
