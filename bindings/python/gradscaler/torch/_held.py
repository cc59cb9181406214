# SPDX-License-Identifier: Apache-2.0
"""What others hold of an optimizer: its state, which they may then change without asking for it, and its ``step``.

References are counted, so that a step reads state only while other code has it. Other threads of Python may free or
replace tensors while the library works on them: :func:`hold` keeps their memory.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ._plan import Plan
from ._seen import Looked

#: Modules whose wrappers around ``step`` leave gradients alone.
_WRAPPERS = ("torch.optim.optimizer", "torch.optim.lr_scheduler", "torch.utils._contextlib")
#: Those whose wrappers take a step that is called for one that is applied.
_COUNTERS = ("accelerate.optimizer",)


def _references(objects: Iterable[Any]) -> list[int]:
    return [sys.getrefcount(found) for found in objects]


#: Of an object that only one container holds; versions of Python differ.
_ALONE = _references([object()])[0] if hasattr(sys, "getrefcount") else 0


def _own(plans: Iterable[Plan]) -> Counter[int]:
    """References of the optimizer itself, by id, besides those in its state."""
    own: Counter[int] = Counter()
    for plan in plans:
        for objects in (plan.params, plan.entries, *plan.state.values(), *(made.values() for made in plan.made)):
            own.update(map(id, objects))
    return own


def is_state_held(entries: Any, plans: Iterable[Plan]) -> bool:
    """Whether other code has `entries`, state by parameter, or anything in it. True in doubt."""
    if not _ALONE:
        return True
    own = _own(plans)
    # The optimizer and the parameter here are two that hold the whole.
    if _references([entries])[0] > _ALONE + 2:
        return True

    def any_held(values: Iterable[Any]) -> bool:
        return any(count > _ALONE + own[id(found)] for found, count in zip(values, _references(values), strict=True))

    # The entries first: what goes through one holds it.
    return any_held(entries.values()) or any(any_held(entry.values()) for entry in entries.values())


def is_counted(optimizer: Any) -> bool:
    """Whether other code counts the calls of ``optimizer.step``, to learn whether a GradScaler has skipped it."""
    step = vars(optimizer).get("step")
    return getattr(step, "__globals__", {}).get("__name__") in _COUNTERS


def is_direct(step: Any, own: Any) -> bool:
    """Whether calling `step` comes to `own` with nothing in between but PyTorch's wrappers."""
    while step is not own:
        step = getattr(step, "__func__", step)
        if step is own:
            return True
        # Not __module__, which functools.wraps copies.
        if getattr(step, "__globals__", {}).get("__name__") not in _WRAPPERS:
            return False
        step = getattr(step, "__wrapped__", None)
    return True


# While the library works.


def is_alone() -> bool:
    return len(sys._current_frames()) == 1


def hold(plan: Plan, grads: list[Any]) -> list[Any]:
    """What keeps all memory of a plan. RuntimeError names a tensor that has been replaced.

    `grads` are its gradients, as plain tensors; None for those that are gone.
    """
    lists = [("", plan.params), ("", plan.copies)]
    lists += [(f"'s state {slot!r}", tensors) for slot, tensors in plan.state.items()]
    held = [_storages(tensors, looked, plan.labels, suffix)
            for (suffix, tensors), looked in zip(lists, plan.seen, strict=True)]
    return [*held, _storages(grads, plan.grads_seen, plan.labels, ".grad")]


def _storages(tensors: list[Any], looked: Looked, labels: list[str], suffix: str) -> list[Any]:
    """The storages of tensors, which cannot be pointed elsewhere. The addresses that were taken must be in them."""
    storages = [None if tensor is None else tensor.untyped_storage() for tensor in tensors]
    for storage, address, label in zip(storages, looked.each(), labels, strict=False):
        if address and (storage is None or not 0 <= address - storage.data_ptr() < storage.nbytes()):
            raise RuntimeError(f"{label}{suffix} was replaced by another thread during the step")
    return storages
