# SPDX-License-Identifier: Apache-2.0
"""Flax: training.dynamic_scale.DynamicScale, its value_and_grad scanned under jit."""

import jax
import jax.numpy as jnp
from flax.training.dynamic_scale import DynamicScale

from .common import ALL_SEEDS, SHORT, SOME_SEEDS, STEPS, package_version

PRESET = "flax"
PROOF = "executed"
SOURCE = "flax.training.dynamic_scale.DynamicScale"
VERSION = f"{package_version('flax')}, {package_version('jax')}"
CASES = [
    ("interval 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
    ("defaults", {}, SOME_SEEDS, STEPS),
    ("odd factors", {"growth_factor": 1.7, "backoff_factor": 0.3, "growth_interval": 7}, SOME_SEEDS, STEPS),
    ("near the largest float", {"init_scale": 2.0**126, "growth_interval": 1}, SOME_SEEDS, SHORT),
    ("down to the floor", {"init_scale": 2.0**-120, "growth_interval": 50}, SOME_SEEDS, SHORT),
]


def step(dynamic_scale, overflow):
    # The gradient of the factor is what the scaler sees; it ignores the scale, so that only the pattern decides.
    gradient = jax.custom_vjp(lambda x: x)
    gradient.defvjp(lambda x: (x, None), lambda _, g: (jnp.where(overflow, jnp.inf, 1.0),))
    dynamic_scale, _, _, _ = dynamic_scale.value_and_grad(lambda x: gradient(x))(jnp.float32(1.0))
    return dynamic_scale, dynamic_scale.scale


def trajectory(options, overflows):
    scaler = DynamicScale(
        growth_factor=options.get("growth_factor", 2.0),
        backoff_factor=options.get("backoff_factor", 0.5),
        growth_interval=options.get("growth_interval", 2000),
        fin_steps=jnp.int32(0),
        scale=jnp.float32(options.get("init_scale", 65536.0)),
    )
    _, scales = jax.jit(lambda s, o: jax.lax.scan(step, s, o))(scaler, jnp.array(overflows))
    return [float(s) for s in scales]
