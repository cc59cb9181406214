# SPDX-License-Identifier: Apache-2.0
"""Keras 3: optimizers.LossScaleOptimizer around SGD on the JAX backend, its stateless step scanned under jit."""

import importlib
import os

from .common import ALL_SEEDS, SHORT, SOME_SEEDS, STEPS, package_version

os.environ["KERAS_BACKEND"] = "jax"
jax = importlib.import_module("jax")
jnp = importlib.import_module("jax.numpy")
keras = importlib.import_module("keras")

PRESET = "keras"
PROOF = "executed"
SOURCE = "keras.optimizers.LossScaleOptimizer"
VERSION = f"{package_version('keras')} on {package_version('jax')}"
CASES = [
    ("growth steps 20", {"growth_interval": 20}, ALL_SEEDS, STEPS),
    ("defaults", {}, SOME_SEEDS, STEPS),
    ("past the largest float", {"init_scale": 2.0**126, "growth_interval": 1}, (0, 2, 5), SHORT),
]


def trajectory(options, overflows):
    variable = keras.Variable(jnp.zeros(1))
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.0),
        initial_scale=options.get("init_scale", 2.0**15),
        dynamic_growth_steps=options.get("growth_interval", 2000),
    )
    optimizer.build([variable])
    at = [v.path for v in optimizer.variables].index(optimizer.dynamic_scale.path)

    def step(state, overflow):
        variables, trainable = state
        grads = [jnp.where(overflow, jnp.inf, jnp.ones(1))]
        trainable, variables = optimizer.stateless_apply(variables, grads, trainable)
        return (variables, trainable), variables[at]

    start = ([v.value for v in optimizer.variables], [variable.value])
    _, scales = jax.jit(lambda s, o: jax.lax.scan(step, s, o))(start, jnp.array(overflows))
    return [float(s) for s in scales]
