# SPDX-License-Identifier: Apache-2.0
"""Calls of handlers that run on each shard as it lies, and under vmap.

XLA does not look into a custom call: it would gather sharded operands on every device first. The handlers work
elementwise, except for a flag that is joined over all shards, so each device can call them on its shards. This module
tells XLA's partitioner (Shardy, or GSPMD). Inside shard_map and pmap the arrays are shards already.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ._untyped import custom_partitioning, jax, jnp

#: For each operand or result the number of the leaf whose shape and shards it has; None for a word.
Leaves = tuple[int | None, ...]


def per_shard(body: Callable[..., Sequence[Any]], operands: Leaves, results: Leaves) -> Any:
    """`body` as a function that leaves shards where they are, with these `operands` and `results`.

    `body` is elementwise in the leaves. A word among its results is 1.0 if one of its leaves holds inf or NaN, else
    0.0. A leaf has the sharding of the last operand of its number, and the others are brought to it.
    """
    lies_as = {leaf: i for i, leaf in enumerate(operands) if leaf is not None}

    def whole(*arrays: Any) -> list[Any]:
        return list(body(*_same_variance(arrays)))

    def shardings(mesh: Any, arg_shapes: Any) -> tuple[Any, Any]:
        found: dict[int | None, Any] = {leaf: arg_shapes[i].sharding for leaf, i in lies_as.items()}
        found[None] = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        return [found[leaf] for leaf in results], tuple(found[leaf] for leaf in operands)

    def infer(mesh: Any, arg_shapes: Any, result_shape: Any) -> Any:
        del result_shape
        return shardings(mesh, arg_shapes)[0]

    def partition(mesh: Any, arg_shapes: Any, result_shape: Any) -> Any:
        del result_shape

        def shard(*arrays: Any) -> list[Any]:
            return [jax.lax.pmax(array, mesh.axis_names) if leaf is None else array
                    for array, leaf in zip(body(*arrays), results, strict=True)]

        return (mesh, shard, *shardings(mesh, arg_shapes))

    def rule(mesh: Any, operand_types: Any, result_types: Any) -> str:
        del mesh

        def side(leaves: Leaves, types: Any) -> str:
            # A factor for each dimension of each leaf, the same wherever that leaf is.
            return ", ".join(" ".join(f"l{leaf}d{d}" for d in range(len(found.shape))) if leaf is not None else ""
                             for leaf, found in zip(leaves, types, strict=True))

        return f"{side(operands, operand_types)} -> {side(results, result_types)}"

    partitioned = custom_partitioning(whole)
    partitioned.def_partition(partition, infer_sharding_from_operands=infer, sharding_rule=rule)
    batched_too = jax.custom_batching.custom_vmap(partitioned)

    def over_a_batch(axis_size: int, in_batched: Sequence[bool], *arrays: Any) -> Any:
        words_batched = any(batched for batched, leaf in zip(in_batched, operands, strict=True) if leaf is None)
        # A word that all have in common is left as it is, where the leaves are.
        batch = [array if batched or (leaf is None and not words_batched)
                 else jnp.broadcast_to(array, (axis_size, *jnp.shape(array)))
                 for array, batched, leaf in zip(arrays, in_batched, operands, strict=True)]
        if words_batched:
            out = jax.lax.map(lambda one: batched_too(*one), batch)
        else:
            out = batched_too(*batch)
            if None in results:  # One call has one word.
                finite = [jnp.isfinite(array).all(tuple(range(1, array.ndim)))
                          for array, leaf in zip(out, results, strict=True) if leaf is not None]
                found = 1.0 - functools.reduce(jnp.logical_and, finite).astype(jnp.float32)
                out = [found if leaf is None else array for array, leaf in zip(out, results, strict=True)]
        return out, [True] * len(results)

    batched_too.def_vmap(over_a_batch)
    return batched_too


def alike(rows: Iterable[Sequence[Any]]) -> list[list[int]]:
    """The numbers of the rows, by what their arrays vary over: each group can be one call without varying more."""
    groups: dict[Any, list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(frozenset().union(*map(_varying, row)), []).append(i)
    return list(groups.values())


def _varying(array: Any) -> Any:
    """The axes of a shard_map over which an array varies, where JAX keeps account of them (check_vma)."""
    typed: Any = jax.typeof(array) if hasattr(jax, "typeof") else None
    # The second is what it is called in newer versions.
    return getattr(typed, "vma", None) or getattr(getattr(typed, "mat", None), "varying", frozenset())


def vary(tree: Any, axis_name: Any) -> Any:
    """`tree` as varying over an axis, where JAX keeps account: gradients of what does not vary come as sums."""
    if not _varying(jax.lax.axis_index(axis_name)):
        return tree
    axes = axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,)
    return jax.tree_util.tree_map(lambda leaf: _cast(leaf, frozenset(axes)), tree)


def _same_variance(arrays: Sequence[Any]) -> list[Any]:
    """A handler's operands have to vary over the same axes."""
    axes = frozenset().union(*map(_varying, arrays))
    return [_cast(array, axes) for array in arrays]


def _cast(array: Any, axes: Any) -> Any:
    missing = tuple(axes - _varying(array))
    if not missing:
        return array
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(array, missing, to="varying")
    return jax.lax.pvary(array, missing)
