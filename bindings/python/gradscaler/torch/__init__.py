# SPDX-License-Identifier: Apache-2.0
"""A drop-in for ``torch.amp.GradScaler``, and optimizers that take the whole step in one pass.

``from gradscaler.torch import GradScaler`` and nothing else changes: constructor, methods, exceptions, state dict and
optimizers (fused and unfused, several at once) are PyTorch's, and it is an instance of ``torch.amp.GradScaler``.
Gradients are passed by pointer. docs/reference/semantics.md lists the differences: values that overflow only when
they are unscaled count as overflow, and growth is tested with >=. Of a DTensor (FSDP2, tensor parallel) each rank
checks its shard, and the ranks agree on inf as with PyTorch's class. On devices that the library does not have, and for
other subclasses of tensors, PyTorch's own kernels do the work.

``SGD``, ``Adam``, ``AdamW``, ``Adagrad``, ``RMSprop``, ``Adadelta``, ``Adamax``, ``NAdam``, ``RAdam``, ``Lion``,
``LAMB`` and ``AdaBelief`` are optimizers of ``torch.optim``'s kind; under either GradScaler they check, unscale, clip
and step on the gradients where they lie. Importing this module imports torch;
nothing else in the package does.
"""

from __future__ import annotations

from typing import Any

from .. import torch_state
from ..optim import Optimizer
from ._check import StepReport
from ._memory import memory
from ._optim import FusedOptimizer
from ._optimizers import (
    LAMB,
    SGD,
    AdaBelief,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Lion,
    NAdam,
    RAdam,
    RMSprop,
)
from ._scaler import GradScaler
from ._schedule import AppliedLR

__all__ = ["LAMB", "SGD", "AdaBelief", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "AppliedLR", "FusedOptimizer",
           "GradScaler", "Lion", "NAdam", "RAdam", "RMSprop", "StepReport", "memory",
           "optimizer_state_dict"]


def optimizer_state_dict(optimizer: Optimizer) -> dict[str, Any]:
    """The state of `optimizer`, of ``gradscaler``, as ``torch.optim``'s of the same name loads it. Blocks.

    The way back is the optimizer's own ``load_state_dict``. InvalidArgumentError for Lion, LAMB and AdaBelief.
    """
    return torch_state.to_torch(optimizer)
