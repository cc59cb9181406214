# SPDX-License-Identifier: Apache-2.0
"""fairseq: optim.dynamic_loss_scaler.DynamicLossScaler, the file loaded by itself from the source distribution. A run
ends where the original raises FloatingPointError, at its floor."""

from .common import ALL_SEEDS, SOME_SEEDS, STEPS, load_file, source_file

PRESET = "fairseq"
PROOF = "executed"
SOURCE = "fairseq.optim.dynamic_loss_scaler.DynamicLossScaler"
VERSION = "fairseq 0.12.2"
CASES = [
    ("window 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
    ("defaults", {}, SOME_SEEDS, STEPS),
    ("tolerance 5 %", {"growth_interval": 20, "overflow_tolerance": 0.05}, ALL_SEEDS, STEPS),
    ("tolerance 25 %", {"growth_interval": 50, "overflow_tolerance": 0.25}, SOME_SEEDS, STEPS),
]

module = load_file("dynamic_loss_scaler", source_file("fairseq/optim/dynamic_loss_scaler.py"))


def trajectory(options, overflows):
    scaler = module.DynamicLossScaler(
        init_scale=options.get("init_scale", 2.0**15),
        scale_window=options.get("growth_interval", 2000),
        tolerance=options.get("overflow_tolerance", 0.0),
    )

    def update(overflow):
        try:
            scaler.check_overflow(float("inf") if overflow else 1.0)
            scaler.update()
        except OverflowError:
            pass

    scales = []
    for overflow in overflows:
        try:
            update(overflow)
        except FloatingPointError:
            break
        scales.append(scaler.loss_scale)
    return scales
