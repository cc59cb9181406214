# SPDX-License-Identifier: Apache-2.0
"""A model of Apex's legacy amp.LossScaler.update_scale, written from apex/amp/scaler.py (NVIDIA/apex), which is not on
PyPI. The scale is a Python float there."""

from .common import ALL_SEEDS, SHORT, SOME_SEEDS, STEPS, drive

PRESET = "apex"
PROOF = "modelled"
SOURCE = "apex/amp/scaler.py, class LossScaler"
CASES = [
    ("window 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
    ("defaults", {}, SOME_SEEDS, STEPS),
    ("floor", {"growth_interval": 7, "min_scale": 16.0}, SOME_SEEDS, SHORT),
]


def version():
    return "rule as published"


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
