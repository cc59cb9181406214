# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM: core.optimizer.grad_scaler.DynamicGradScaler. The module is loaded by itself, and its tensors, which ask
for a GPU, are made on the CPU; nothing else is changed."""

import torch

from .common import ALL_SEEDS, SHORT, SOME_SEEDS, STEPS, drive, load_file, package_file, package_version

PRESET = "megatron"
PROOF = "executed"
SOURCE = "megatron.core.optimizer.grad_scaler.DynamicGradScaler"
VERSION = package_version("megatron-core")
CASES = [
    ("interval 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
    ("defaults", {}, SOME_SEEDS, STEPS),
    ("hysteresis 4, odd factors", {"init_scale": 1000.0, "growth_factor": 1.7, "backoff_factor": 0.3,
                                   "growth_interval": 7, "hysteresis": 4}, SOME_SEEDS, SHORT),
]


class TorchOnCpu:
    """torch, with tensor() deaf to device='cuda'."""

    def __getattr__(self, name):
        return getattr(torch, name)

    @staticmethod
    def tensor(*args, **kwargs):
        kwargs.pop("device", None)
        return torch.tensor(*args, **kwargs)


module = load_file("grad_scaler", package_file("megatron-core", "megatron/core/optimizer/grad_scaler.py"))
module.torch = TorchOnCpu()


def trajectory(options, overflows):
    scaler = module.DynamicGradScaler(
        initial_scale=options.get("init_scale", 2.0**32),
        min_scale=1.0,
        growth_factor=options.get("growth_factor", 2.0),
        backoff_factor=options.get("backoff_factor", 0.5),
        growth_interval=options.get("growth_interval", 1000),
        hysteresis=options.get("hysteresis", 2),
    )
    return drive(scaler.update, lambda: scaler.scale, overflows)
