# SPDX-License-Identifier: Apache-2.0
"""PyTorch: torch.amp.GradScaler on the CPU, through its own step and update."""

import torch

from .common import ALL_SEEDS, SHORT, SOME_SEEDS, STEPS, package_version

PRESET = "torch"
PROOF = "executed"
SOURCE = "torch.amp.GradScaler"
VERSION = package_version("torch")
CASES = [
    ("interval 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
    ("defaults", {}, SOME_SEEDS, STEPS),
    ("odd factors", {"init_scale": 1000.0, "growth_factor": 1.7, "backoff_factor": 0.3, "growth_interval": 7},
     SOME_SEEDS, STEPS),
    ("near the largest float", {"init_scale": 2.0**126, "growth_interval": 1}, SOME_SEEDS, SHORT),
    ("collapse to zero", {"init_scale": 2.0**-120, "growth_interval": 50}, SOME_SEEDS, SHORT),
]


def trajectory(options, overflows):
    scaler = torch.amp.GradScaler(
        "cpu",
        init_scale=options.get("init_scale", 2.0**16),
        growth_factor=options.get("growth_factor", 2.0),
        backoff_factor=options.get("backoff_factor", 0.5),
        growth_interval=options.get("growth_interval", 2000),
    )
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    finite, infinite = torch.ones(1), torch.full((1,), float("inf"))
    scaler.scale(torch.zeros(1))
    scales = []
    for overflow in overflows:
        parameter.grad = (infinite if overflow else finite).clone()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales
