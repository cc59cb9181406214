# SPDX-License-Identifier: Apache-2.0
"""gradscaler.jax on a GPU: the handlers under jit against the CPU's, bit for bit; memory and threads. What does not
need both devices is in tests/python/test_jax*.py, which scripts/gpu runs on the GPU too."""

import functools

import numpy as np
import pytest

from conftest import library

jax = library("jax")
jnp = jax.numpy

from on_device import ON_GPU, alone_and_together, require_device, same_bits  # noqa: E402

import gradscaler.jax as gj  # noqa: E402


def gpus():
    try:
        return jax.devices("cuda")
    except RuntimeError:
        return []


require_device(bool(gpus()), "JAX")
HERE, CPU = (gpus() or jax.devices("cpu"))[0], jax.devices("cpu")[0]
SHAPES = {"b": (7,), "w": (6, 9), "x": (0, 3), "y": (70_001,), "z": ()}


@pytest.fixture(autouse=True)
def here():
    with jax.default_device(HERE):
        yield


def tree(seed, dtype="float32", device=HERE):
    rng = np.random.default_rng(seed)
    return {name: jax.device_put(jnp.asarray(4.0 * rng.normal(size=shape), dtype), device)
            for name, shape in SHAPES.items()}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("bad", [None, np.inf, np.nan])
def test_unscale_check_has_the_bits_of_the_cpu(dtype, bad):
    found = []
    for device in (HERE, CPU):
        grads = tree(0, dtype, device)
        if bad is not None:
            grads["y"] = grads["y"].at[65_000].set(bad)
        with jax.default_device(device):
            found.append(jax.jit(gj.unscale_check)(grads, 0.3))
    assert float(found[0][1]) == float(bad is not None)
    same_bits(*found)


def run(device, param_dtype, grad_dtype, steps=20, **options):
    with jax.default_device(device):
        params = tree(0, param_dtype, device)
        state = gj.adamw_init(params, **options)
        step = jax.jit(functools.partial(gj.adamw, weight_decay=0.1), donate_argnums=(0, 2))
        for turn in range(steps):
            grads = tree(1 + turn, grad_dtype, device)
            params, state = step(params, grads, state, lr=0.1 / (1 + turn), inv_scale=0.25, found_inf=float(turn == 3))
        return jax.tree.leaves((params, state))


@pytest.mark.parametrize("param_dtype, grad_dtype, options", [
    ("float32", "float32", {}), ("float32", "float16", {}), ("bfloat16", "bfloat16", {}),
    ("float16", "float16", {"state": "8bit", "master": "split"}),
    ("bfloat16", "float32", {"state": "16bit", "master": "stochastic", "seed": 3})], ids=str)
def test_adamw_has_the_bits_of_the_cpu(param_dtype, grad_dtype, options):
    same_bits(*(run(device, param_dtype, grad_dtype, **options) for device in (HERE, CPU)))


def test_many_calls_take_no_more_memory():
    params = [jnp.full(10 + i % 7, float(i)) for i in range(120)]
    grads, state = [p + 1.0 for p in params], gj.adamw_init(params)
    step = jax.jit(lambda p, g, s: gj.adamw(p, g, s, lr=1e-3), donate_argnums=(0, 2))
    sizes = []
    for turn in range(60):
        params, state = step(params, grads, state)
        jax.block_until_ready(params)
        if turn in (5, 30, 59) and ON_GPU:
            sizes.append(HERE.memory_stats()["bytes_in_use"])
    assert len(set(sizes)) <= 1, f"bytes in use grow: {sizes}"


def test_calls_of_several_threads():
    alone, together = alone_and_together(lambda seed: run(HERE, "float32", "float32", 5 + seed))
    same_bits(together, alone, "thread")
