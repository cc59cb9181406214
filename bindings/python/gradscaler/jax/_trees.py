# SPDX-License-Identifier: Apache-2.0
"""Pairing of pytrees by key: {'w': ...} with {'v': ...} is an error, whatever the shapes."""

from __future__ import annotations

from typing import Any

from ._untyped import jax, jnp


def paired(name: str, found: Any, like: Any, like_name: str = "params") -> list[Any]:
    """The leaves of `found` in the order of `like`. ValueError unless both have the same keys and shapes."""
    have, want = _by_key(found), _by_key(like)
    for key in want:
        if key not in have:
            raise ValueError(f"{name} has no {key or 'array'}, which {like_name} has; they must have the same keys")
    for key, array in have.items():
        if key not in want:
            raise ValueError(f"{name} has {key or 'an array'}, which {like_name} does not have; they must have the same"
                             " keys")
        shape, wanted = jnp.shape(array), jnp.shape(want[key])
        if shape != wanted:
            raise ValueError(f"{name}{key} has shape {shape}, but {like_name}{key} has {wanted}")
    return [have[key] for key in want]


def _by_key(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}
