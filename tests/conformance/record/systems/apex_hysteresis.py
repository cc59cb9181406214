# SPDX-License-Identifier: Apache-2.0
"""A model of Apex's update_scale_hysteresis kernel, written from csrc/update_scale_hysteresis.cu (NVIDIA/apex), which
needs a GPU. The scale is fp32, the products are formed in double."""

import math

from golden import to_float32

from .common import ALL_SEEDS, SHORT, SOME_SEEDS, STEPS, drive

PRESET = "apex_hysteresis"
PROOF = "modelled"
SOURCE = "apex/csrc/update_scale_hysteresis.cu"
CASES = [
    ("interval 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
    ("hysteresis 4, odd factors", {"init_scale": 1000.0, "growth_factor": 1.7, "backoff_factor": 0.3,
                                   "growth_interval": 7, "hysteresis": 4}, SOME_SEEDS, SHORT),
    ("near the largest float", {"init_scale": 2.0**126, "growth_interval": 1}, SOME_SEEDS, SHORT),
]


def version():
    return "rule as published"


def trajectory(options, overflows):
    scale = to_float32(options.get("init_scale", 2.0**16))
    hysteresis = options.get("hysteresis", 2)
    interval = options.get("growth_interval", 2000)
    left, growth_tracker = hysteresis, 0

    def update(overflow):
        nonlocal scale, left, growth_tracker
        if overflow:
            left -= 1
            if left > 0:
                growth_tracker = 0
                return
            scale = to_float32(scale * options.get("backoff_factor", 0.5))
            growth_tracker = 0
            return
        growth_tracker += 1
        if growth_tracker == interval:
            grown = to_float32(scale * options.get("growth_factor", 2.0))
            if math.isfinite(grown):
                scale = grown
            growth_tracker = 0
        left = hysteresis

    return drive(update, lambda: scale, overflows)
