// SPDX-License-Identifier: Apache-2.0
//! Trains a small network on handwritten digits with candle, in fp32, in fp16, and in fp16 with loss scaling, with a
//! loss so small that most of its gradients are lost in fp16 unless they are scaled. A fourth run has a first scale that
//! is far too large. How the library is used is in training.rs; the twin in C is examples/c/digits.
//!
//!     cargo run --release -- digits.csv [--check]
mod dataset;
mod network;
mod training;

use dataset::Dataset;
use gradscaler::{Context, ScalerOptions};
use half::f16;
use std::process::ExitCode;
use training::{train, Outcome};

/// Of candle, or of gradscaler.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const SMALL: f64 = 1e-5;

fn show(name: &str, outcome: &Outcome) {
    println!(
        "{:<20} accuracy {:5.1} %, {:2} steps skipped, scale {}",
        name,
        100.0 * outcome.accuracy,
        outcome.skipped,
        outcome.scale
    );
}

fn run(data: &str) -> Result<bool> {
    let digits = Dataset::read(data)?;
    let context = Context::cpu()?;
    let unscaled = ScalerOptions::default().enabled(false);
    let scaled = ScalerOptions::default().growth_interval(50);
    println!("loss x 1e-5");
    let fp32 = train::<f32>(&context, &digits, unscaled, SMALL)?;
    show("fp32", &fp32);
    let plain = train::<f16>(&context, &digits, unscaled, SMALL)?;
    show("fp16, no scaling", &plain);
    let saved = train::<f16>(&context, &digits, scaled, SMALL)?;
    show("fp16 + GradScaler", &saved);
    let settling = train::<f16>(&context, &digits, scaled.init_scale(1073741824.0), 1.0)?;
    show("from 2^30, loss x 1", &settling);

    let mut all_hold = true;
    let mut holds = |claim: &str, holds: bool| {
        if !holds {
            eprintln!("does not hold: {}", claim);
            all_hold = false;
        }
    };
    holds("fp32 reaches 90 %", fp32.accuracy > 0.9);
    holds("unscaled fp16 fails", plain.accuracy < 0.5);
    holds("scaled fp16 reaches 90 %", saved.accuracy > 0.9);
    holds(
        "scaled fp16 is within 3 % of fp32",
        (saved.accuracy - fp32.accuracy).abs() < 0.03,
    );
    holds("the run from 2^30 reaches 90 %", settling.accuracy > 0.9);
    holds(
        "the run from 2^30 skips its first steps",
        settling.skipped >= 5,
    );
    Ok(all_hold)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (data, check) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [data] => (data, false),
        [data, "--check"] => (data, true),
        _ => {
            eprintln!("usage: gradscaler-digits digits.csv [--check]");
            return ExitCode::from(2);
        }
    };
    match run(data) {
        Ok(all_hold) if all_hold || !check => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("gradscaler-digits: {}", error);
            ExitCode::FAILURE
        }
    }
}
