# SPDX-License-Identifier: Apache-2.0
"""Pairing of pytrees by key, in JAX's order of their leaves: {'w': ...} with {'v': ...} is an error; and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np  # type: ignore[import-not-found, unused-ignore]

from .. import trees
from ..memory import DTYPES
from ._jax_imports import jax, jnp

# Not all that have a dtype: a Param of flax.nnx has that of the array in it.
_ARRAYS = (jax.Array, np.ndarray, np.generic)


def paired(name: str, found: Any, like: Any, like_name: str = "params", dtype: Any = None,
           shape_of: Callable[[Any], Any] = tuple) -> list[Any]:
    """The leaves of `found` as JAX orders those of `like`. InvalidArgumentError unless keys and shapes are the same.

    With `dtype` they must have that one, and the shapes that `shape_of` makes of those of `like`.
    """
    structure = jax.tree_util.tree_structure(like)
    # Numbers in the place of the leaves, since JAX sorts keys.
    numbers = jax.tree_util.tree_unflatten(structure, range(structure.num_leaves))
    reference = trees.flatten(numbers, like_name, none_is_leaf=False)
    leaves = require_floating(name, found, dtype)
    leaves = trees.reorder(leaves, trees.pair(leaves, reference))
    wanted = [shape_of(jnp.shape(leaf)) for leaf in jax.tree_util.tree_leaves(like)]
    trees.require_shapes(leaves, [jnp.shape(leaf) for leaf in leaves.values], reference,
                         [wanted[number] for number in reference.values])
    # Numbers of Python are leaves too.
    of_number = dict(zip(reference.values, map(jnp.asarray, leaves.values), strict=True))
    return [of_number[number] for number in range(structure.num_leaves)]


def flattened(name: str, tree: Any) -> tuple[list[Any], Any]:
    """The arrays of `tree` and its structure. Raises as :func:`require_floating` does."""
    require_floating(name, tree)
    leaves, structure = jax.tree_util.tree_flatten(jax.tree_util.tree_map(jnp.asarray, tree))
    return leaves, structure


def require_floating(name: str, tree: Any, only: Any = None) -> trees.Leaves:
    """The leaves of `tree`. TypeError, which names the key, unless the handlers take their dtypes, or it is `only`."""
    leaves = trees.flatten(tree, name, is_leaf=lambda value: isinstance(value, _ARRAYS), none_is_leaf=False)
    for i, leaf in enumerate(leaves.values):
        if not isinstance(leaf, (*_ARRAYS, int, float, complex)) and not hasattr(leaf, "dtype"):
            raise TypeError(f"{leaves.label(i)} is {type(leaf).__name__}; it must be an array or a number")
        dtype = str(jnp.result_type(leaf))
        if dtype not in (DTYPES if only is None else (only,)):
            raise TypeError(f"{leaves.label(i)} has dtype {dtype}; it must be {only or 'one of ' + ', '.join(DTYPES)}")
    return leaves
