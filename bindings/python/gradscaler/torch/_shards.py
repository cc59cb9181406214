# SPDX-License-Identifier: Apache-2.0
"""DTensors, as FSDP2 and tensor parallel make them: this rank's part of one, and what ranks agree on.

Every rank has the same DTensors in the same order, so that all call the same collectives.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]


def dtensor() -> Any:
    """The class; None as long as nobody has imported it."""
    return getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)


def is_dtensor(tensor: Any) -> bool:
    """Whether it is one, or of a subclass."""
    kind = dtensor()
    return kind is not None and isinstance(tensor, kind)


def local(tensor: Any) -> Any:
    """The tensor, or this rank's shard of a DTensor."""
    return tensor.to_local() if is_dtensor(tensor) else tensor


def shard_groups(tensor: Any) -> tuple[Any, ...]:
    """The process groups whose ranks hold other parts of a DTensor."""
    return tuple(tensor.device_mesh.get_group(dim) for dim, placement in enumerate(tensor.placements)
                 if not placement.is_replicate())


def overflow_groups(groups: Iterable[Any], found_inf: Any) -> None:
    """The largest `found_inf` of the ranks of these groups."""
    for group in groups:
        torch.distributed.all_reduce(found_inf, torch.distributed.ReduceOp.MAX, group=group)
