# SPDX-License-Identifier: Apache-2.0
"""MindSpore: amp.DynamicLossScaler.adjust on the CPU."""

import importlib

from .common import ALL_SEEDS, SHORT, SOME_SEEDS, drive, package_version

mindspore = importlib.import_module("mindspore")
amp = importlib.import_module("mindspore.amp")

PRESET = "mindspore"
PROOF = "executed"
SOURCE = "mindspore.amp.DynamicLossScaler"
CASES = [
    ("window 20", {"growth_interval": 20}, ALL_SEEDS, 5000),
    ("factor 8", {"growth_factor": 8.0, "backoff_factor": 0.125, "growth_interval": 7}, SOME_SEEDS, SHORT),
    ("near the largest float", {"init_scale": 2.0**126, "growth_interval": 1}, (0, 2, 5), SHORT),
]


def version():
    return package_version("mindspore")


def trajectory(options, overflows):
    scaler = amp.DynamicLossScaler(
        scale_value=options.get("init_scale", 2.0**16),
        scale_factor=int(options.get("growth_factor", 2)),
        scale_window=options.get("growth_interval", 2000),
    )
    finite = {False: mindspore.Tensor(True), True: mindspore.Tensor(False)}
    return drive(lambda o: scaler.adjust(finite[o]), lambda: scaler.scale_value.asnumpy(), overflows)
