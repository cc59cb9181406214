# SPDX-License-Identifier: Apache-2.0
"""What others hold of an optimizer: its state, which they may then change without asking for it, and its ``step``.

References are counted, so that a step reads state only while other code has it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ._plan import Member, Plan

#: Modules whose wrappers around ``step`` leave gradients alone.
_WRAPPERS = ("torch.optim.optimizer", "torch.optim.lr_scheduler", "torch.utils._contextlib")
#: Those whose wrappers take a step that is called for one that is applied.
_COUNTERS = ("accelerate.optimizer",)


def _references(objects: Iterable[Any]) -> list[int]:
    return [sys.getrefcount(found) for found in objects]


#: Of an object that only one container holds; versions of Python differ.
_ALONE = _references([object()])[0] if hasattr(sys, "getrefcount") else 0


def _own(members: Iterable[tuple[Member, dict[str, Any]]], plans: Iterable[Plan]) -> Counter[int]:
    """References of the optimizer itself, by id, besides those in its state."""
    own: Counter[int] = Counter()
    for plan in plans:
        for tensors in (plan.params, *plan.state.values()):
            own.update(map(id, tensors))
    for member, entry in members:
        own.update(map(id, (entry, member.param, *member.state.values(), *member.made.values())))
    return own


def is_state_held(entries: Any, members: Iterable[tuple[Member, dict[str, Any]]], plans: Iterable[Plan]) -> bool:
    """Whether other code has `entries`, state by parameter, or anything in it. True in doubt."""
    if not _ALONE:
        return True
    own = _own(members, plans)
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
