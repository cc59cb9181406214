# SPDX-License-Identifier: Apache-2.0
"""Nested collections of arrays as named leaves, and the pairing of two of them by name, never by position of a key.

In :mod:`.jax` leaves may be tracers.

A leaf's name joins the keys that lead to it with dots: ``{"layer": {"w": x}}`` has ``layer.w``. Items of sequences are
called by their index, so two sequences are paired by position and two mappings by key, in whatever order. Its path is
the same for messages: ``['layer']['w']``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import InvalidArgumentError

#: A child of a container: its name, its part of the path, whether the name is a key and not an index, and itself.
_Child = tuple[str, str, bool, Any]


@dataclass
class Leaves:
    """The result of :func:`flatten`: one entry of each list for each leaf, in the order of the collection."""

    #: What they are the leaves of, in messages: ``params``.
    argument: str
    names: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    #: Whether the names come from keys; indices give the position alone.
    named: bool = False
    #: Paths of entries that are None where that means nothing, by name.
    empty: list[str] = field(default_factory=list)

    def label(self, index: int) -> str:
        return self.argument + self.paths[index]

    def __len__(self) -> int:
        return len(self.values)


def flatten(tree: Any, argument: str, *, is_leaf: Callable[[Any], bool] | None = None,
            none_is_leaf: bool = True) -> Leaves:
    """The leaves of mappings, lists, tuples, named tuples and pytrees registered with JAX or PyTorch, however nested.

    At the top any other iterable will do but a set, which has no order; one of pairs ``(name, array)``, such as
    ``named_parameters()``, is a mapping. Where `is_leaf` is true, the value is a leaf. With ``none_is_leaf=False`` None
    is nothing, as in JAX; in registered pytrees it always is. Raises TypeError and InvalidArgumentError for sets and
    for two leaves of one name.
    """
    found = Leaves(argument)
    _walk(_top(tree, argument, is_leaf), (), "", found, is_leaf, none_is_leaf)
    seen: dict[str, int] = {}
    for index, name in enumerate(found.names):
        first = seen.setdefault(name, index)
        if first != index:
            raise InvalidArgumentError(f"{found.label(first)} and {found.label(index)} have the same name, {name!r};"
                                       " rename one")
    return found


def pair(leaves: Leaves, reference: Leaves) -> list[int]:
    """For each leaf of `reference` the index of its partner in `leaves`; InvalidArgumentError if one has none.

    The message names what is missing, what is unknown, and two collections that have no name in common.
    """
    index = {name: i for i, name in enumerate(leaves.names)}
    missing = [i for i, name in enumerate(reference.names) if name not in index]
    known = set(reference.names)
    unknown = [i for i, name in enumerate(leaves.names) if name not in known]
    if not missing and not unknown:
        return [index[name] for name in reference.names]
    this, that = leaves.argument, reference.argument
    if leaves.named != reference.named and leaves.names and reference.names:
        named, plain = (leaves, reference) if leaves.named else (reference, leaves)
        raise InvalidArgumentError(f"{named.argument} has names ({_some(named.names)}), but {plain.argument} is a"
                                   f" sequence without: pass both as mappings with the same names, or both as"
                                   " sequences in the same order")
    if missing and len(missing) == len(reference) and unknown:
        raise InvalidArgumentError(f"{this} and {that} have no name in common: {this} has {_some(leaves.names)};"
                                   f" {that} has {_some(reference.names)}")
    if missing:
        name = reference.names[missing[0]]
        what = "is None" if name in leaves.empty else "is missing"
        extra = f"; unknown there is {leaves.label(unknown[0])}" if unknown else ""
        raise InvalidArgumentError(f"{this}{reference.paths[missing[0]]} {what}, but there is"
                                   f" {reference.label(missing[0])}{extra}")
    raise InvalidArgumentError(f"{leaves.label(unknown[0])} is unknown: {that} has no such entry")


def require_shapes(leaves: Leaves, shapes: Sequence[Sequence[int] | None], reference: Leaves,
                   expected: Sequence[Sequence[int] | None]) -> None:
    """InvalidArgumentError unless paired leaves (in one order) have the same shapes. None fits every shape."""
    for index, (shape, other) in enumerate(zip(shapes, expected, strict=True)):
        if shape is not None and other is not None and tuple(shape) != tuple(other):
            raise InvalidArgumentError(f"{leaves.label(index)} has shape {tuple(shape)}, but {reference.label(index)}"
                                       f" has {tuple(other)}")


def reorder(leaves: Leaves, order: Sequence[int]) -> Leaves:
    return Leaves(leaves.argument, [leaves.names[i] for i in order], [leaves.paths[i] for i in order],
                  [leaves.values[i] for i in order], leaves.named, leaves.empty)


def is_mapping(value: Any) -> bool:
    """Returns whether it is a mapping, or has the methods of one, as torch.nn.ParameterDict has.

    Not what is an array besides, as pandas' Series: its items are copies.
    """
    return isinstance(value, Mapping) or (hasattr(value, "keys") and hasattr(value, "items")
                                          and hasattr(value, "__getitem__") and not isinstance(value, type)
                                          and not hasattr(value, "__array__"))


def _top(tree: Any, argument: str, is_leaf: Callable[[Any], bool] | None) -> Any:
    if not (is_leaf is not None and is_leaf(tree)) and _children(tree) is None:
        if isinstance(tree, (set, frozenset)):
            raise TypeError(f"{argument} is a {type(tree).__name__}, which has no order; pass a mapping or a list")
        if isinstance(tree, (str, bytes)) or not hasattr(tree, "__iter__"):
            return tree
        tree = list(tree)
    if isinstance(tree, (list, tuple)) and tree and all(
            isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) for item in tree):
        if len({name for name, _ in tree}) < len(tree):
            raise InvalidArgumentError(f"{argument} has two entries of the same name")
        return dict(tree)
    return tree


def _walk(value: Any, keys: tuple[str, ...], path: str, found: Leaves, is_leaf: Callable[[Any], bool] | None,
          none_is_leaf: bool) -> None:
    children = None if is_leaf is not None and is_leaf(value) else _children(value)
    if children is None:
        if value is None and not none_is_leaf:
            found.empty.append(".".join(keys))
            return
        found.names.append(".".join(keys) if keys else "0")
        found.paths.append(path)
        found.values.append(value)
        return
    registered, items = children
    for name, part, key, child in items:
        found.named = found.named or key
        _walk(child, (*keys, name), path + part, found, is_leaf, none_is_leaf and not registered)


def _children(value: Any) -> tuple[bool, Iterator[_Child]] | None:
    """The children of a container, and whether it is a registered pytree; None for a leaf."""
    if is_mapping(value):
        return False, ((str(key), f"[{key!r}]", True, value[key]) for key in value.keys())
    fields = getattr(value, "_fields", None)
    if isinstance(value, tuple) and fields is not None:
        return False, ((name, f".{name}", True, getattr(value, name)) for name in fields)
    if isinstance(value, (list, tuple)):
        return False, ((str(i), f"[{i}]", False, item) for i, item in enumerate(value))
    if type(value).__module__ in ("builtins", "itertools"):
        return None
    for module, prefix in (("jax", "jax.tree_util"), ("torch", "torch.utils._pytree")):
        registry = sys.modules.get(prefix) if module in sys.modules else None
        if registry is None:
            continue
        # One level: what is not the value itself is a leaf.
        children, _ = registry.tree_flatten(value, is_leaf=lambda item: item is not value)
        if len(children) == 1 and children[0] is value:
            continue
        try:
            paths, _ = registry.tree_flatten_with_path(value, is_leaf=lambda item: item is not value)
        except ValueError:  # PyTorch: registered without keys.
            return True, ((str(i), f"[{i}]", False, child) for i, child in enumerate(children))
        return True, (_registered(key[0], child) for key, child in paths)
    return None


def _registered(key: Any, child: Any) -> _Child:
    for attribute, form in (("name", ".{}"), ("idx", "[{}]"), ("key", "[{!r}]")):
        found = getattr(key, attribute, None)
        if found is not None:
            return str(found), form.format(found), not isinstance(found, int), child
    return str(key), f"[{key}]", True, child


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:6])) + (f", ... ({len(names)})" if len(names) > 6 else "")
