# SPDX-License-Identifier: Apache-2.0
"""Parameters, gradients and copies of all param groups of an optimizer, paired by name.

Everything becomes one list each, in the order of the parameters.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from . import torch_memory, trees
from .arrays import is_leaf_array, leaves_of, require_alike
from .errors import InvalidArgumentError
from .tensors import TensorList

#: A list that was passed as one, or arrays to make one of.
ListSource = TensorList | trees.Leaves


@dataclass
class OptimizerArrays:
    """The arrays of an optimizer, all in the order of the parameters."""

    params: ListSource
    grads: ListSource
    model_copy: ListSource | None
    #: First tensor, number and hyper-parameters of each group; none without groups.
    ranges: list[tuple[int, int, dict[str, Any]]] = field(default_factory=list)


def collect_arrays(params: Any, grads: Any, model_copy: Any) -> OptimizerArrays:
    """Sorts out what was passed to an optimizer. TypeError and InvalidArgumentError name what does not belong."""
    groups = _groups_or_params(params)
    if isinstance(groups, list):
        if grads is not None or model_copy is not None:
            raise TypeError("with param groups, grads and model_copy belong into the groups")
        return _joined([_group_arrays(number, group) for number, group in enumerate(groups)])
    return _paired(groups, grads, model_copy, "params", "grads", "model_copy")


def pair_list(found: ListSource, argument: str, reference: ListSource, reference_argument: str) -> ListSource:
    """`found` in the order of `reference`. A TensorList has its order for good, so another one is refused."""
    def leaves(source: ListSource, called: str, named: bool) -> trees.Leaves:
        if isinstance(source, trees.Leaves):
            return source
        return source._named_leaves(called) if named else source._labels(called)

    own, other = leaves(found, argument, True), leaves(reference, reference_argument, True)
    if own.named != other.named:
        # The `names` of a list of arrays are labels, which the other side need not have.
        own, other = leaves(found, argument, False), leaves(reference, reference_argument, False)
    order = trees.pair(own, other)
    if isinstance(found, trees.Leaves):
        return trees.reorder(found, order)
    if order != list(range(len(order))):
        raise InvalidArgumentError(f"{argument} is a TensorList in another order than {reference_argument}: make it of"
                                   " the arrays in that order, or pass the arrays themselves")
    return found


def require_like(found: TensorList, argument: str, params: TensorList) -> None:
    require_alike(found._labels(argument), found._tensors, params._labels("params"), params._tensors)


def _groups_or_params(params: Any) -> Any:
    """A list of groups, or else parameters, which are no list."""
    if isinstance(params, TensorList) or trees.is_mapping(params) or is_leaf_array(params):
        return params
    if hasattr(params, "__iter__") and not isinstance(params, (str, bytes, set, frozenset)):
        params = params if isinstance(params, tuple) else tuple(params)
        if params and all(trees.is_mapping(group) and "params" in group for group in params):
            return list(params)
    return params


def _leaves(arrays: Any, argument: str) -> ListSource:
    if isinstance(arrays, TensorList):
        arrays._handle  # noqa: B018  # Raises if it is closed.
        return arrays
    return leaves_of(arrays, argument)


def _paired(params: Any, grads: Any, model_copy: Any, *arguments: str) -> OptimizerArrays:
    found = _leaves(params, arguments[0])
    if grads is None:
        is_torch = isinstance(found, trees.Leaves) and any(map(torch_memory.is_torch, found.values))
        instead = "; tensors of PyTorch that have .grad are for the optimizers of gradscaler.torch" if is_torch else ""
        raise TypeError(f"{arguments[1]} is missing{instead}")
    paired = pair_list(_leaves(grads, arguments[1]), arguments[1], found, arguments[0])
    if model_copy is None:
        return OptimizerArrays(found, paired, None)
    copies = pair_list(_leaves(model_copy, arguments[2]), arguments[2], found, arguments[0])
    return OptimizerArrays(found, paired, copies)


def _group_arrays(number: int, group: Any) -> OptimizerArrays:
    rest = dict(group.items())
    name = f"param_groups[{number}]"
    params, grads, copies = rest.pop("params"), rest.pop("grads", None), rest.pop("model_copy", None)
    for what, value in (("params", params), ("grads", grads), ("model_copy", copies)):
        if isinstance(value, TensorList):
            raise TypeError(f"{name}[{what!r}] is a TensorList; a group takes the arrays themselves")
    arrays = _paired(params, grads, copies, *(f"{name}[{what!r}]" for what in ("params", "grads", "model_copy")))
    arrays.ranges = [(0, len(arrays.params), rest)]
    return arrays


def _joined(groups: list[OptimizerArrays]) -> OptimizerArrays:
    if len({arrays.model_copy is None for arrays in groups}) > 1:
        raise ValueError("either every param group or none has a 'model_copy'")
    joined: dict[str, trees.Leaves] = {}
    for what in ("params", "grads", "model_copy"):
        whole = joined[what] = trees.Leaves("")
        for arrays in groups:
            leaves = getattr(arrays, what)
            if leaves is None:
                continue
            whole.names += leaves.names if leaves.named else [str(len(whole) + i) for i in range(len(leaves))]
            whole.paths += [leaves.label(i) for i in range(len(leaves))]
            whole.values += leaves.values
            whole.named = whole.named or leaves.named
        for name, count in Counter(whole.names).items():
            if count > 1:
                raise InvalidArgumentError(f"two param groups have a tensor named {name!r}; rename one")
    ranges, first = [], 0
    for arrays in groups:
        ranges.append((first, len(arrays.params), arrays.ranges[0][2]))
        first += len(arrays.params)
    copies = None if groups[0].model_copy is None else joined["model_copy"]
    return OptimizerArrays(joined["params"], joined["grads"], copies, ranges)
