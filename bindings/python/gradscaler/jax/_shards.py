# SPDX-License-Identifier: Apache-2.0
"""Calls of handlers that run on each shard as it lies, and under vmap.

XLA does not look into a custom call: it would gather sharded operands on every device first. The handlers work
elementwise, except for a flag that is joined over all shards, so each device can call them on its shards. This module
tells XLA's partitioner (Shardy, or GSPMD). Inside shard_map and pmap the arrays are shards already.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..state_formats import GROUP, groups_axis
from ._jax_imports import custom_partitioning, jax, jnp

#: For each operand or result the number of the leaf whose shape and shards it has; None for a word. ~number is an array
#: of :func:`groups_shape` of that leaf, such as its scales.
Leaves = tuple[int | None, ...]


def _grouped(mesh: Any, sharding: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The sharding of a leaf with groups, all of whose elements have to lie on one device, and that of the groups."""
    axis = groups_axis(shape)
    found = [*sharding.spec, *[None] * (len(shape) - len(sharding.spec))]
    if axis is None:
        found, groups = [None] * len(shape), [None]
    else:
        names = found[axis] if isinstance(found[axis], tuple) else (found[axis],) * (found[axis] is not None)
        ranks = math.prod(mesh.shape[name] for name in names)
        if any(found[axis + 1:]) or shape[axis] % ranks or math.prod(shape[axis:]) // ranks % GROUP:
            found[axis:] = [None] * (len(shape) - axis)
        groups = [*found[:axis], found[axis]]
    return tuple(jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec)) for spec in (found, groups))


def per_shard(body: Callable[..., Sequence[Any]], operands: Leaves, results: Leaves) -> Any:
    """`body` as a function that leaves shards where they are, with these `operands` and `results`.

    `body` is elementwise in the leaves. A word among its results is 1.0 if one of its leaves holds inf or NaN, else
    0.0. A leaf has the sharding of the last operand of its number, and the others are brought to it.
    """
    lies_as = {leaf: i for i, leaf in enumerate(operands) if leaf is not None and leaf >= 0}
    grouped = {~leaf for leaf in (*operands, *results) if leaf is not None and leaf < 0}

    def whole(*arrays: Any) -> list[Any]:
        return list(body(*_same_variance(arrays)))

    def shardings(mesh: Any, arg_shapes: Any) -> tuple[Any, Any]:
        found: dict[int | None, Any] = {leaf: arg_shapes[i].sharding for leaf, i in lies_as.items()}
        for leaf in grouped:
            found[leaf], found[~leaf] = _grouped(mesh, found[leaf], arg_shapes[lies_as[leaf]].shape)
        found[None] = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        return [found[leaf] for leaf in results], tuple(found[leaf] for leaf in operands)

    def infer(mesh: Any, arg_shapes: Any, result_shape: Any) -> Any:
        return shardings(mesh, arg_shapes)[0]

    def partition(mesh: Any, arg_shapes: Any, result_shape: Any) -> Any:
        def shard(*arrays: Any) -> list[Any]:
            return [jax.lax.pmax(array, mesh.axis_names) if leaf is None else array
                    for array, leaf in zip(body(*arrays), results, strict=True)]

        return (mesh, shard, *shardings(mesh, arg_shapes))

    def rule(mesh: Any, operand_types: Any, result_types: Any) -> Any:
        sizes: dict[str, int] = {}

        def factors(leaf: int | None, found: Any) -> str:
            # One for each dimension of each leaf, the same wherever that leaf is. The last one of groups is a part of
            # that of the leaf where they have one dimension in common, and any number of shards divides it.
            if leaf is None:
                return ""
            own = f"l{leaf if leaf >= 0 else ~leaf}"
            names = [f"{own}d{d}" for d in range(len(found.shape))]
            if leaf < 0:
                names[-1:] = [own + "g"]
            elif leaf in grouped and groups_axis(tuple(found.shape)) == len(names) - 1 and (
                    found.shape[-1] // GROUP % mesh.size == 0):
                sizes[own + "e"] = GROUP
                names[-1] = f"({own}g {own}e)"
            return " ".join(names)

        def side(leaves: Leaves, types: Any) -> str:
            return ", ".join(map(factors, leaves, types))

        text = f"{side(operands, operand_types)} -> {side(results, result_types)}"
        return (text, sizes) if sizes else text

    partitioned = custom_partitioning(whole)
    partitioned.def_partition(partition, infer_sharding_from_operands=infer, sharding_rule=rule)
    batched_too = jax.custom_batching.custom_vmap(partitioned)

    def over_a_batch(axis_size: int, in_batched: Sequence[bool], *arrays: Any) -> Any:
        # The groups of a batch would not be those of its elements.
        words_batched = bool(grouped) or any(
            batched for batched, leaf in zip(in_batched, operands, strict=True) if leaf is None)
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


def grouped_by_variance(rows: Iterable[Sequence[Any]]) -> list[list[int]]:
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
    axes = frozenset().union(*map(_varying, arrays))
    return [_cast(array, axes) for array in arrays]


def _cast(array: Any, axes: Any) -> Any:
    missing = tuple(axes - _varying(array))
    if not missing:
        return array
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(array, missing, to="varying")
    return jax.lax.pvary(array, missing)
