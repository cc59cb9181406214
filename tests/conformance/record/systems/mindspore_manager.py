# SPDX-License-Identifier: Apache-2.0
"""MindSpore: amp.DynamicLossScaleManager, the rule in Python numbers that Model.train uses. A run ends where it raises
RuntimeError, at the 1001st overflow in a row, and where its scale leaves the range of fp32."""

import importlib

from .common import ALL_SEEDS, SOME_SEEDS, STEPS, package_version

amp = importlib.import_module("mindspore.amp")

PRESET = "mindspore"
PROOF = "executed"
SOURCE = "mindspore.amp.DynamicLossScaleManager"
CASES = [
    ("window 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
    ("its defaults", {"init_scale": 2.0**24}, SOME_SEEDS, STEPS),
    ("factor 8", {"growth_factor": 8.0, "backoff_factor": 0.125, "growth_interval": 7}, SOME_SEEDS, STEPS),
]


def version():
    return package_version("mindspore")


def trajectory(options, overflows):
    manager = amp.DynamicLossScaleManager(
        init_loss_scale=options.get("init_scale", 2.0**16),
        scale_factor=int(options.get("growth_factor", 2)),
        scale_window=options.get("growth_interval", 2000),
    )
    scales = []
    for overflow in overflows:
        try:
            manager.update_loss_scale(overflow)
        except RuntimeError:
            break
        scales.append(float(manager.get_loss_scale()))
    return scales
