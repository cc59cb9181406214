# SPDX-License-Identifier: Apache-2.0
"""Real training under jit, on the digits: a convolutional network (linen) and a small transformer (nnx), in fp16 and
bf16. Three arms: float32, 16 bits without a scale, 16 bits with one. The loss is made small on purpose, as a mean over
many more outputs would be. And each step beside flax's DynamicScale with optax.adamw, from the same state. Gradient
accumulation, flax's TrainState and nnx.Optimizer are examples of docs/jax.md, which test_package.py runs."""

import functools
import gzip

import numpy as np
import pytest

from conftest import ROOT, library

jax = library("jax")
linen = library("flax.linen")
nnx = library("flax.nnx")
optax = library("optax")
jnp = jax.numpy

import gradscaler.jax as gj  # noqa: E402
import gradscaler.jax.optax as go  # noqa: E402

STEPS, BATCH, LOSS_WEIGHT, LR, EPS = 60, 64, 2.0**-16, 5e-3, 1e-15


@functools.cache
def digits():
    with gzip.open(ROOT / "examples" / "data" / "digits.csv.gz") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = table[np.random.default_rng(0).permutation(len(table))]
    batches = np.random.default_rng(1).integers(len(table), size=(STEPS, BATCH))
    return jnp.asarray(table[batches, :-1] / 16), jnp.asarray(table[batches, -1], jnp.int32)


class LinenConv(linen.Module):
    dtype: str

    @linen.compact
    def __call__(self, x):
        x = linen.relu(linen.Conv(8, (3, 3), dtype=self.dtype)(x.reshape(-1, 8, 8, 1)))
        x = linen.avg_pool(x, (2, 2), (2, 2)).reshape(len(x), -1)
        return linen.Dense(10, dtype=self.dtype)(x)


class NnxTransformer(nnx.Module):
    def __init__(self, dtype, rngs):
        linear = functools.partial(nnx.Linear, dtype=dtype, rngs=rngs)
        self.into, self.up, self.down, self.out = linear(8, 16), linear(16, 32), linear(32, 16), linear(16, 10)
        self.position = nnx.Param(0.1 * jax.random.normal(rngs.params(), (8, 16)))
        self.norm = nnx.LayerNorm(16, dtype=dtype, rngs=rngs)
        # By hand: flax's attention asks for a product of fp16 in fp32, which XLA does not have on the CPU.
        self.query, self.key, self.value = linear(16, 16), linear(16, 16), linear(16, 16)

    def __call__(self, x):
        x = self.into(x.reshape(-1, 8, 8))
        x = x + self.position[...].astype(x.dtype)
        normed = self.norm(x)
        scores = jnp.einsum("bqd,bkd->bqk", self.query(normed), self.key(normed)) / 4
        x = x + jnp.einsum("bqk,bkd->bqd", nnx.softmax(scores), self.value(normed))
        return self.out((x + self.down(nnx.gelu(self.up(x)))).mean(1))


# Parameters are float32 whatever a model computes in: they are made, and compiled, once.
@functools.cache
def linen_params():
    return jax.jit(LinenConv("float32").init)(jax.random.key(0), digits()[0][0])


@functools.cache
def nnx_params():
    return nnx.state(nnx.jit(lambda: NnxTransformer("float32", nnx.Rngs(0)))())


def linen_conv(dtype):
    return linen_params(), LinenConv(dtype).apply


def nnx_transformer(dtype):
    graph = nnx.graphdef(nnx.eval_shape(lambda: NnxTransformer(dtype, nnx.Rngs(0))))
    return nnx_params(), lambda params, x: nnx.merge(graph, params)(x)


MODELS = {"linen conv": linen_conv, "nnx transformer": nnx_transformer}


def loss_of(apply):
    def loss(params, x, y):
        logits = apply(params, x).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean() * LOSS_WEIGHT
    return loss


def train(make, dtype, scale):
    """The losses of all steps, the scale at the end and the steps skipped; all of it one scan with donated buffers."""
    params, apply = make(dtype)
    tx = go.adamw(LR, eps=EPS)

    def step(carry, batch):
        params, state, scale = carry
        scale, found_inf, loss, grads = scale.value_and_grad(loss_of(apply))(params, *batch)
        updates, state = tx.update(grads, state, params, found_inf=found_inf)
        return (optax.apply_updates(params, updates), state, scale), (loss / LOSS_WEIGHT, found_inf)

    run = jax.jit(functools.partial(jax.lax.scan, step), donate_argnums=0)
    params, scale = jax.tree_util.tree_map(jnp.copy, (params, scale))
    carry = params, tx.init(params), scale
    (_, _, scale), (losses, found) = run(carry, digits())
    return np.asarray(losses), float(scale.scale), int(found.sum())


@pytest.mark.parametrize("model", MODELS)
def test_three_arms(model):
    make = MODELS[model]
    fixed = gj.DynamicScale.create(1.0, growth_interval=10**6)
    full, _, _ = train(make, "float32", fixed)
    assert full[-10:].mean() < 1.2 < 2.0 < full[0]
    # From a scale that overflows at first: it has to find its way down.
    half, scale, skipped = train(make, "float16", gj.DynamicScale.create(2.0**36, growth_interval=20, min_scale=1.0))
    assert skipped > 0 and 1.0 < scale < 2.0**36
    assert half[-10:].mean() < full[-10:].mean() + 0.35  # It lost the steps that were skipped.
    flushed, _, _ = train(make, "float16", fixed)
    assert flushed[-10:].mean() > half[-10:].mean() + 0.3
    brain, _, skipped = train(make, "bfloat16", gj.DynamicScale.create())
    assert skipped == 0 and abs(brain[-10:].mean() - full[-10:].mean()) < 0.1


@pytest.mark.parametrize("model, dtype", [("linen conv", "float16"), ("linen conv", "bfloat16"),
                                          ("nnx transformer", "float16")])
def test_step_by_step_beside_flax_and_optax(model, dtype):
    flax_scale = library("flax.training.dynamic_scale")
    params, apply = MODELS[model](dtype)
    ours, theirs = go.adamw(LR, eps=EPS), optax.adamw(LR, eps=EPS)
    state = ours.init(params)
    scale = gj.DynamicScale.create(2.0**34, preset="flax", growth_interval=5)
    other = flax_scale.DynamicScale(growth_interval=5, scale=jnp.float32(2.0**34), fin_steps=jnp.int32(0))
    loss = loss_of(apply)

    @jax.jit
    def step_of_ours(scale, params, state, batch):
        scale, found_inf, value, grads = scale.value_and_grad(loss)(params, *batch)
        updates, state = ours.update(grads, state, params, found_inf=found_inf)
        return scale, optax.apply_updates(params, updates), state, value, found_inf

    @jax.jit
    def step_of_theirs(scale, params, state, batch):
        scale, finite, value, grads = scale.value_and_grad(loss)(params, *batch)
        updates, after = theirs.update(grads, state, params)
        keep = functools.partial(jax.tree_util.tree_map, lambda new, old: jnp.where(finite, new, old))
        return scale, keep(optax.apply_updates(params, updates), params), keep(after, state), value, finite

    skipped = 0
    for x, y in zip(*digits(), strict=True):
        other, their_params, their_state, their_value, finite = step_of_theirs(other, params, state, (x, y))
        scale, params, state, value, found_inf = step_of_ours(scale, params, state, (x, y))
        assert (found_inf == 0.0) == bool(finite)
        assert scale.scale == other.scale and scale.growth_tracker == other.fin_steps
        assert value == their_value or (not np.isfinite(value) and not np.isfinite(their_value))
        assert state[0].count == their_state[0].count
        skipped += not finite
        for one, reference in zip(*map(jax.tree_util.tree_leaves, (params, their_params)), strict=True):
            # A step is LR times 4 at most; optax's corrections are off by 3e-5 of it at first, see test_jax_optax.
            np.testing.assert_allclose(one, reference, rtol=2.0**-23, atol=4 * LR * 5e-5)
        # On a GPU the two programs may round the products in their gradients differently.
        rtol = 1e-5 if jax.default_backend() == "cpu" else 1e-4
        for one, reference in zip(*map(jax.tree_util.tree_leaves, (state, their_state)), strict=True):
            np.testing.assert_allclose(one, reference, rtol=rtol, atol=2.0**-22 * float(jnp.abs(one).max()))
    assert (skipped > 0) == (dtype == "float16")
