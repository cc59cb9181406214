# SPDX-License-Identifier: Apache-2.0
"""fairseq: optim.dynamic_loss_scaler.DynamicLossScaler, the file loaded by itself from the source distribution. A run
ends where the original raises FloatingPointError, so the patterns that reach the floor are left out."""

from .common import ALL_SEEDS, SOME_SEEDS, STEPS, drive, load_file, source_file

PRESET = "FAIRSEQ"
PROOF = "executed"
SOURCE = "fairseq.optim.dynamic_loss_scaler.DynamicLossScaler"
WITHOUT_FLOOR = tuple(s for s in ALL_SEEDS if s not in (1, 5, 11, 17))
CASES = [
    ("window 20", {"growth_interval": 20}, WITHOUT_FLOOR[:12], STEPS),
    ("defaults", {}, (0, 6, 12, 18), STEPS),
    ("tolerance 5 %", {"growth_interval": 20, "overflow_tolerance": 0.05}, WITHOUT_FLOOR, STEPS),
    ("tolerance 25 %", {"growth_interval": 50, "overflow_tolerance": 0.25}, SOME_SEEDS, STEPS),
]

module = load_file("dynamic_loss_scaler", source_file("fairseq/optim/dynamic_loss_scaler.py"))


def version():
    return "fairseq 0.12.2"


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

    return drive(update, lambda: scaler.loss_scale, overflows)
