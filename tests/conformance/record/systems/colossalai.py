# SPDX-License-Identifier: Apache-2.0
"""ColossalAI: amp.naive_amp.grad_scaler.DynamicGradScaler, the two files loaded by themselves from the source
distribution, with stubs for the accelerator (the CPU) and the logger that they import."""

import types

import torch

from .common import ALL_SEEDS, SHORT, SOME_SEEDS, STEPS, drive, load_file, source_file, stub

PRESET = "colossalai"
PROOF = "executed"
SOURCE = "colossalai.amp.naive_amp.grad_scaler.DynamicGradScaler"
VERSION = "colossalai 0.5.0"
CASES = [
    ("interval 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
    ("floor, ceiling, hysteresis 3", {"growth_interval": 20, "hysteresis": 3, "min_scale": 8.0, "max_scale": 2.0**20},
     SOME_SEEDS, STEPS),
    ("odd factors", {"init_scale": 1000.0, "growth_factor": 1.7, "backoff_factor": 0.3, "growth_interval": 7,
                     "min_scale": 2.0**-20}, SOME_SEEDS, SHORT),
]

cpu = types.SimpleNamespace(get_current_device=lambda: torch.device("cpu"), device_count=lambda: 1)
stub("colossalai")
stub("colossalai.accelerator", get_accelerator=lambda: cpu)
stub("colossalai.logging", get_dist_logger=lambda *_: None)
stub("grad_scaler")
FOLDER = "colossalai/amp/naive_amp/grad_scaler"
load_file("grad_scaler.base_grad_scaler", source_file(f"{FOLDER}/base_grad_scaler.py"))
module = load_file("grad_scaler.dynamic_grad_scaler", source_file(f"{FOLDER}/dynamic_grad_scaler.py"))


def trajectory(options, overflows):
    scaler = module.DynamicGradScaler(
        initial_scale=options.get("init_scale", 2.0**16),
        growth_factor=options.get("growth_factor", 2.0),
        backoff_factor=options.get("backoff_factor", 0.5),
        growth_interval=options.get("growth_interval", 1000),
        hysteresis=options.get("hysteresis", 2),
        min_scale=options.get("min_scale"),
        max_scale=options.get("max_scale"),
    )
    return drive(scaler.update, lambda: scaler.scale, overflows)
