// SPDX-License-Identifier: Apache-2.0
// The scenarios: each is one short story of a scaler.
use crate::files;
use crate::world::World;
use std::panic::{catch_unwind, AssertUnwindSafe};

#[test]
fn every_scenario_holds() {
    let file = files::read(&files::path_of("scenarios.json"));
    assert_eq!(file.at("format").integer(), 1);
    let scenarios = file.at("scenarios").array();
    assert!(!scenarios.is_empty());
    let mut failed = Vec::new();
    for scenario in scenarios {
        let name = scenario.at("name").text();
        let holds = catch_unwind(AssertUnwindSafe(|| {
            let events = scenario.at("events").array();
            assert!(!events.is_empty());
            let mut world = World::new(scenario);
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
