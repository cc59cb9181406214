# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of gradscaler.jax, which are skipped without JAX: random trees, and when two are equal."""

import numpy as np

from conftest import library

jax = library("jax")
jnp = jax.numpy

import gradscaler.jax as gj  # noqa: E402, F401


def random_tree(shapes, seed, dtype="float32"):
    rng = np.random.default_rng(seed)
    return {name: jnp.asarray(rng.normal(size=shape), dtype) for name, shape in shapes.items()}


def same_bits(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        one, other = np.asarray(one), np.asarray(other)
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes()
