// SPDX-License-Identifier: Apache-2.0
// The scenario files: each is one short story of a scaler.
use crate::files;
use crate::world::World;
use std::panic::{catch_unwind, AssertUnwindSafe};

#[test]
fn every_scenario_holds() {
    let mut failed = Vec::new();
    for path in files::all("scenarios") {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let holds = catch_unwind(AssertUnwindSafe(|| {
            let file = files::read(&path);
            assert_eq!(file.at("format").integer(), 1);
            let events = file.at("events").array();
            assert!(!events.is_empty());
            let mut world = World::new(&file);
            for (i, event) in events.iter().enumerate() {
                world.act(
                    event,
                    &format!("{}, event {} ({})", name, i, event.at("do").text()),
                );
            }
        }));
        if holds.is_err() {
            failed.push(name);
        }
    }
    assert!(
        failed.is_empty(),
        "these do not hold: {}",
        failed.join(", ")
    );
}
