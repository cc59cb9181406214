# SPDX-License-Identifier: Apache-2.0
"""jmp: DynamicLossScale.adjust called as it is, outside of jit, where a backoff is a division rounded once: the preset
without its products in fp32."""

from .common import ALL_SEEDS, SOME_SEEDS
from .jmp import PROOF, jnp, make_scaler, version  # noqa: F401

PRESET = "jmp"
SOURCE = "jmp.DynamicLossScale outside of jit"
STEPS = 500
CASES = [
    ("period 20", {"growth_interval": 20, "flags": []}, ALL_SEEDS, STEPS),
    ("factor 3", {"growth_factor": 3.0, "backoff_factor": 1 / 3, "growth_interval": 7, "flags": []}, SOME_SEEDS, STEPS),
    ("factor 10", {"growth_factor": 10.0, "backoff_factor": 0.1, "growth_interval": 5, "flags": []}, SOME_SEEDS, STEPS),
    ("near the largest float", {"init_scale": 2.0**126, "growth_interval": 1, "flags": []}, SOME_SEEDS, STEPS),
]


def trajectory(options, overflows):
    scaler, scales = make_scaler(options), []
    for overflow in overflows:
        scaler = scaler.adjust(jnp.array(not overflow))
        scales.append(float(scaler.loss_scale))
    return scales
