# SPDX-License-Identifier: Apache-2.0
"""jmp: DynamicLossScale.adjust, scanned under jit, as training uses it. XLA makes the division by the factor, which is
a constant there, a multiplication by fp32(1 / factor); jmp_eager has the division."""

import jax
import jax.numpy as jnp
import jmp

from .common import ALL_SEEDS, SHORT, SOME_SEEDS, STEPS, package_version

PRESET = "jmp"
PROOF = "executed"
SOURCE = "jmp.DynamicLossScale under jit"
VERSION = f"{package_version('jmp')}, {package_version('jax')}"
CASES = [
    ("period 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
    ("defaults", {}, SOME_SEEDS, STEPS),
    ("factor 8", {"growth_factor": 8.0, "backoff_factor": 0.125, "growth_interval": 7}, SOME_SEEDS, STEPS),
    ("factor 3", {"growth_factor": 3.0, "backoff_factor": 1 / 3, "growth_interval": 7}, SOME_SEEDS, SHORT),
    ("factor 10", {"growth_factor": 10.0, "backoff_factor": 0.1, "growth_interval": 5}, SOME_SEEDS, SHORT),
    ("near the largest float", {"init_scale": 2.0**126, "growth_interval": 1}, SOME_SEEDS, SHORT),
]


def make_scaler(options):
    return jmp.DynamicLossScale(
        loss_scale=jnp.float32(options.get("init_scale", 2.0**15)),
        counter=jnp.int32(0),
        period=options.get("growth_interval", 2000),
        factor=int(options.get("growth_factor", 2)),
        min_loss_scale=jnp.float32(1.0),
    )


def trajectory(options, overflows):
    def step(state, finite):
        state = state.adjust(finite)
        return state, state.loss_scale

    _, scales = jax.jit(lambda s, f: jax.lax.scan(step, s, f))(make_scaler(options), ~jnp.array(overflows))
    return [float(s) for s in scales]


class jmp_eager:
    """jmp: DynamicLossScale.adjust outside of jit, where a backoff is a division rounded once: the preset without its
    products in fp32."""

    PRESET = "jmp"
    PROOF = PROOF
    SOURCE = "jmp.DynamicLossScale outside of jit"
    STEPS = 500
    CASES = [
        ("period 20", {"growth_interval": 20, "flags": []}, ALL_SEEDS, STEPS),
        ("factor 3", {"growth_factor": 3.0, "backoff_factor": 1 / 3, "growth_interval": 7, "flags": []}, SOME_SEEDS,
         STEPS),
        ("factor 10", {"growth_factor": 10.0, "backoff_factor": 0.1, "growth_interval": 5, "flags": []}, SOME_SEEDS,
         STEPS),
        ("near the largest float", {"init_scale": 2.0**126, "growth_interval": 1, "flags": []}, SOME_SEEDS, STEPS),
    ]
    VERSION = VERSION

    @staticmethod
    def trajectory(options, overflows):
        scaler, scales = make_scaler(options), []
        for overflow in overflows:
            scaler = scaler.adjust(jnp.array(not overflow))
            scales.append(float(scaler.loss_scale))
        return scales
