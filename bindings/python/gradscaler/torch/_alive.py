# SPDX-License-Identifier: Apache-2.0
"""Keeps the memory that the library works on while other threads of Python run, which may free or replace tensors.

A call of the library knows addresses, not tensors, and lets other threads run. What they replace during the call stays
allocated until it returns; what they have replaced since the addresses were taken is an error.
"""

from __future__ import annotations

import sys
from typing import Any

from ._plan import Looked, Plan, replaced


def is_alone() -> bool:
    """Whether there is no other thread of Python in this process."""
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
            raise replaced(label + suffix)
    return storages
