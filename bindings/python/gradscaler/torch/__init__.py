# SPDX-License-Identifier: Apache-2.0
"""A drop-in for ``torch.amp.GradScaler``, and optimizers that take the whole step in one pass.

``from gradscaler.torch import GradScaler`` and nothing else changes: constructor, methods, exceptions, state dict and
optimizers (fused and unfused, several at once) are PyTorch's, and it is an instance of ``torch.amp.GradScaler``.

The optimizers, ``AdamW`` and the others of ``gradscaler``, are of ``torch.optim``'s kind; under either GradScaler they
check, unscale, clip and step on the gradients where they lie. Importing this module imports torch; nothing else in the
package does.
"""

from __future__ import annotations

from typing import Any

from .. import torch_state
from ..optim import Optimizer
from . import _optimizers, _others
from ._grad_check import StepReport
from ._lr_scheduler import AppliedLR
from ._memory import memory
from ._optim import FusedOptimizer
from ._optimizers import *  # noqa: F403 - all of its __all__
from ._others import *  # noqa: F403 - its __all__ comes from the header
from ._scaler import GradScaler

__all__ = ["AppliedLR", "FusedOptimizer", "GradScaler", "StepReport", "memory",
           "optimizer_state_dict"]
__all__ += _optimizers.__all__
__all__ += _others.__all__


def optimizer_state_dict(optimizer: Optimizer) -> dict[str, Any]:
    """The state of `optimizer`, of ``gradscaler``, as ``torch.optim``'s of the same name loads it. Blocks.

    The way back is the optimizer's own ``load_state_dict``. InvalidArgumentError for a kind that ``torch.optim`` does
    not have.
    """
    return torch_state.to_torch(optimizer)
