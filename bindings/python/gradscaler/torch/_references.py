# SPDX-License-Identifier: Apache-2.0
"""References that other code has to an optimizer: to its state, which it may then change, and wrappers of ``step``.

References are counted, so that a step reads state only while other code has it. Other threads of Python may free or
replace tensors while the library works on them: :func:`held_storages` keeps their memory.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ._guards import Snapshot
from ._plan import Plan

#: Modules whose wrappers around ``step`` leave gradients alone.
_WRAPPER_MODULES = ("torch.optim.optimizer", "torch.optim.lr_scheduler", "torch.utils._contextlib")
#: Those whose wrappers take a step that is called for one that is applied.
_STEP_COUNTING_MODULES = ("accelerate.optimizer",)


def _references(objects: Iterable[Any]) -> list[int]:
    return [sys.getrefcount(found) for found in objects]


#: Of an object that only one container holds; versions of Python differ.
_SOLE_REFERENCE = _references([object()])[0] if hasattr(sys, "getrefcount") else 0


def _own_references(plans: Iterable[Plan]) -> Counter[int]:
    """References of the optimizer itself, by id, besides those in its state."""
    own: Counter[int] = Counter()
    for plan in plans:
        pending = [entry.values() for entry in plan.pending_state]
        for objects in (plan.params, plan.entries, *plan.state.values(), *pending):
            own.update(map(id, objects))
    return own


def is_state_referenced(entries: Any, plans: Iterable[Plan]) -> bool:
    """Returns whether other code has `entries`, state by parameter, or anything in it. True in doubt."""
    if not _SOLE_REFERENCE:
        return True
    own = _own_references(plans)
    # The optimizer and the parameter here are two that hold the whole.
    if _references([entries])[0] > _SOLE_REFERENCE + 2:
        return True

    def any_held(values: Iterable[Any]) -> bool:
        return any(count > _SOLE_REFERENCE + own[id(found)]
                   for found, count in zip(values, _references(values), strict=True))

    # The entries first: what goes through one holds it.
    return any_held(entries.values()) or any(any_held(entry.values()) for entry in entries.values())


def is_step_counted(optimizer: Any) -> bool:
    """Returns whether other code counts the calls of ``optimizer.step``, to see which a GradScaler has skipped."""
    step = vars(optimizer).get("step")
    return getattr(step, "__globals__", {}).get("__name__") in _STEP_COUNTING_MODULES


def is_step_unwrapped(step: Any, own: Any) -> bool:
    """Returns whether calling `step` comes to `own` with nothing in between but PyTorch's wrappers."""
    while step is not own:
        step = getattr(step, "__func__", step)
        if step is own:
            return True
        # Not __module__, which functools.wraps copies.
        if getattr(step, "__globals__", {}).get("__name__") not in _WRAPPER_MODULES:
            return False
        step = getattr(step, "__wrapped__", None)
    return True


# While the library works.


def is_single_threaded() -> bool:
    return len(sys._current_frames()) == 1


def held_storages(plan: Plan, grads: list[Any]) -> list[Any]:
    """The storages of a plan, whose memory stays as long as they are held. RuntimeError names a replaced tensor.

    `grads` are its gradients, as plain tensors; None for those that are gone.
    """
    lists = [("", plan.params), ("", plan.copies)]
    lists += [(f"'s state {slot!r}", tensors) for slot, tensors in plan.state.items()]
    held = [_storages(tensors, snapshot, plan.labels, suffix)
            for (suffix, tensors), snapshot in zip(lists, plan.snapshots, strict=True)]
    return [*held, _storages(grads, plan.grads_snapshot, plan.labels, ".grad")]


def _storages(tensors: list[Any], snapshot: Snapshot, labels: list[str], suffix: str) -> list[Any]:
    """The storages of tensors, which cannot be pointed elsewhere. The addresses that were taken must be in them."""
    storages = [None if tensor is None else tensor.untyped_storage() for tensor in tensors]
    for storage, address, label in zip(storages, snapshot.address_list(), labels, strict=False):
        if address and (storage is None or not 0 <= address - storage.data_ptr() < storage.nbytes()):
            raise RuntimeError(f"{label}{suffix} was replaced by another thread during the step")
    return storages
