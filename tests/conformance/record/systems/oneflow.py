# SPDX-License-Identifier: Apache-2.0
"""A model of OneFlow's dynamic loss scale, written from its dynamic_loss_scale_schedule kernel (Oneflow-Inc/oneflow):
the class oneflow.amp.GradScaler only configures that kernel, which needs its runtime."""

from golden import to_float32

from .common import ALL_SEEDS, SHORT, SOME_SEEDS, STEPS, drive

FLOAT_MAX = 3.4028234663852886e38

PRESET = "oneflow"
PROOF = "modelled"
SOURCE = "oneflow/user/kernels/dynamic_loss_scale_schedule_kernel.cpp"
VERSION = "rule as published"
CASES = [
    ("period 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
    ("defaults", {}, SOME_SEEDS, STEPS),
    ("to the largest float", {"init_scale": 2.0**126, "growth_interval": 1}, SOME_SEEDS, SHORT),
]


def trajectory(options, overflows):
    scale = options.get("init_scale", 2.0**16)
    good_steps = 0

    def update(overflow):
        nonlocal scale, good_steps
        if overflow:
            good_steps = 0
            scale = max(1.0, to_float32(scale / 2.0))
            return
        good_steps += 1
        if good_steps >= options.get("growth_interval", 2000):
            scale = min(FLOAT_MAX, to_float32(scale * 2.0))
            good_steps = 0

    return drive(update, lambda: scale, overflows)
