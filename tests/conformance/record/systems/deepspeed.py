# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed: runtime.fp16.loss_scaler.DynamicLossScaler. The error at the floor is switched off, as it would end the
run; the library reports it (GSC_FLOOR_ERROR) and goes on."""

import types

from deepspeed.runtime.fp16 import loss_scaler

from .common import ALL_SEEDS, SHORT, SOME_SEEDS, STEPS, drive, package_version

# Rank 0 logs every overflow, and ranks need a process group.
loss_scaler.dist = types.SimpleNamespace(get_rank=lambda: 1)

PRESET = "deepspeed"
PROOF = "executed"
SOURCE = "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler"
VERSION = package_version("deepspeed")
CLEAN = "on_clean_step"
CASES = [
    ("window 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
    ("defaults", {}, SOME_SEEDS, STEPS),
    ("no hysteresis, window 2", {"init_scale": 2.0**8, "growth_interval": 2, "hysteresis": 1}, SOME_SEEDS, SHORT),
    ("hysteresis 4", {"growth_interval": 7, "hysteresis": 4}, SOME_SEEDS, STEPS),
    ("consecutive hysteresis", {"growth_interval": 20, "hysteresis": 3, "hysteresis_refill": CLEAN}, SOME_SEEDS, STEPS),
]


def trajectory(options, overflows):
    scaler = loss_scaler.DynamicLossScaler(
        init_scale=options.get("init_scale", 2.0**16),
        scale_window=options.get("growth_interval", 1000),
        min_scale=1.0,
        delayed_shift=options.get("hysteresis", 2),
        consecutive_hysteresis=options.get("hysteresis_refill") == CLEAN,
        raise_error_at_min_scale=False,
    )
    return drive(scaler.update_scale, lambda: scaler.cur_scale, overflows)
