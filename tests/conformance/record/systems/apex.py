# SPDX-License-Identifier: Apache-2.0
"""A model of Apex's legacy amp.LossScaler.update_scale, written from apex/amp/scaler.py (NVIDIA/apex), which is not on
PyPI. The scale is a Python float there."""

import math

from golden import to_float32

from .common import ALL_SEEDS, SHORT, SOME_SEEDS, STEPS, drive

PRESET = "apex"
PROOF = "modelled"
SOURCE = "apex/amp/scaler.py, class LossScaler"
VERSION = "rule as published"
CASES = [
    ("window 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
    ("defaults", {}, SOME_SEEDS, STEPS),
    ("floor", {"growth_interval": 7, "min_scale": 16.0}, SOME_SEEDS, SHORT),
]


def trajectory(options, overflows):
    scale = options.get("init_scale", 2.0**16)
    window = options.get("growth_interval", 2000)
    floor = options.get("min_scale")
    unskipped = 0

    def update(overflow):
        nonlocal scale, unskipped
        if overflow:
            scale = max(floor, scale / 2.0) if floor else scale / 2.0
            unskipped = 0
        else:
            unskipped += 1
        if unskipped == window:
            scale = min(2.0**24, scale * 2.0)
            unskipped = 0

    return drive(update, lambda: scale, overflows)


class apex_hysteresis:
    """A model of Apex's update_scale_hysteresis kernel, written from csrc/update_scale_hysteresis.cu (NVIDIA/apex),
    which needs a GPU. The scale is fp32, the products are in double."""

    PRESET = "apex_hysteresis"
    PROOF = "modelled"
    SOURCE = "apex/csrc/update_scale_hysteresis.cu"
    CASES = [
        ("interval 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
        ("hysteresis 4, odd factors", {"init_scale": 1000.0, "growth_factor": 1.7, "backoff_factor": 0.3,
                                       "growth_interval": 7, "hysteresis": 4}, SOME_SEEDS, SHORT),
        ("near the largest float", {"init_scale": 2.0**126, "growth_interval": 1}, SOME_SEEDS, SHORT),
    ]
    VERSION = VERSION

    @staticmethod
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
