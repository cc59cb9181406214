# SPDX-License-Identifier: Apache-2.0
"""Parameters of which a rank has a part: DTensors, as FSDP2 and tensor parallel make them, and what ranks agree on.

Every rank has the same DTensors in the same order, so that all call the same collectives. Of the parts that FSDP1 and
ZeroRedundancyOptimizer make it is unknown which ranks have the others: they are recognized to be refused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]


def dtensor() -> Any:
    """The class; None until it has been imported."""
    return getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)


def is_dtensor(tensor: Any) -> bool:
    if type(tensor) is torch.nn.Parameter or type(tensor) is torch.Tensor:
        return False
    kind = dtensor()
    return kind is not None and isinstance(tensor, kind)


def local(tensor: Any) -> Any:
    """The tensor, or this rank's shard of a DTensor."""
    return tensor.to_local() if is_dtensor(tensor) else tensor


def shards_of(p: Any, grad: Any, label: str) -> tuple[Any, ...]:
    """The process groups over whose ranks a parameter is sharded."""
    if not is_dtensor(p):
        if is_dtensor(grad):
            raise TypeError(f"{label}.grad is a DTensor, but {label} is a plain tensor")
        return ()
    if not is_dtensor(grad) or grad.placements != p.placements or grad.device_mesh != p.device_mesh:
        placed = f"has placements {grad.placements}" if is_dtensor(grad) else f"is a {type(grad).__name__}"
        raise ValueError(f"{label}.grad {placed}, but {label} has {p.placements}; redistribute it")
    if any(placement.is_partial() for placement in p.placements):
        raise ValueError(f"{label} has placements {p.placements}; one that is partial has no values to step on")
    return tuple(p.device_mesh.get_group(dim) for dim, placement in enumerate(p.placements)
                 if not placement.is_replicate())


def mesh_groups(tensor: Any) -> tuple[Any, ...]:
    """The process groups whose ranks step on a DTensor: on other parts of it, or on a replica that is to stay equal."""
    return tuple(tensor.device_mesh.get_all_groups())


def with_placements_of(grad: Any, p: Any) -> Any:
    """A gradient with the placements of its parameter, as PyTorch's optimizers use it.

    Of a replicated parameter each rank may have a part of the sum, as of norms in SequenceParallel.
    """
    if is_dtensor(p) and is_dtensor(grad) and grad.device_mesh == p.device_mesh and grad.placements != p.placements:
        return grad.redistribute(placements=p.placements)
    return grad


def is_flattened(p: Any) -> bool:
    """Returns whether it is a part of what FullyShardedDataParallel (FSDP1) has flattened, over several ranks."""
    if not getattr(p, "_fsdp_flattened", False):
        return False
    return bool(torch.distributed.is_initialized()) and torch.distributed.get_world_size() > 1


def is_made_by_zero_redundancy() -> bool:
    """Returns whether ZeroRedundancyOptimizer calls the constructor that calls this, for the parameters of one rank."""
    frame = sys._getframe(1)
    constructors = ("is_made_by_zero_redundancy", "_set_own", "_setup", "__init__")
    while frame.f_back is not None and frame.f_code.co_name in constructors:
        frame = frame.f_back
    return frame.f_globals.get("__name__") == "torch.distributed.optim.zero_redundancy_optimizer"


def all_reduce_found_inf(groups: Iterable[Any], found_inf: Any) -> None:
    for group in groups:
        torch.distributed.all_reduce(found_inf, torch.distributed.ReduceOp.MAX, group=group)
