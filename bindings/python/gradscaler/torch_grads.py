# SPDX-License-Identifier: Apache-2.0
"""Gradients that PyTorch keeps in ``.grad``, read again at every step.

``zero_grad()`` sets them to None and backward makes new ones, so that addresses of the last step mean nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from . import trees
from .arrays import as_tensor
from .errors import InvalidArgumentError
from .tensors import TensorList


class TorchGrads:
    """Where each gradient of an optimizer is read from: ``.grad`` of a tensor, or None where it was passed."""

    def __init__(self, owners: Sequence[Any | None], labels: trees.Leaves, frozen: Sequence[tuple[str, Any]]) -> None:
        self.owners = list(owners)
        self._labels = labels
        self._frozen = list(frozen)

    def first(self) -> list[Any]:
        """Gradients to make the list of; where there is none yet, memory of the right size."""
        torch: Any = sys.modules["torch"]
        return [owner.grad if owner.grad is not None else torch.empty_like(owner, requires_grad=False)
                for owner in self.owners if owner is not None]

    def bind(self, grads: TensorList) -> None:
        """Points `grads` at the gradients of now. InvalidArgumentError for one that is None."""
        for label, tensor in self._frozen:
            if tensor.requires_grad or tensor.grad is not None:
                raise InvalidArgumentError(f"{label} did not require gradients when the optimizer was made, and does"
                                           " now; make a new optimizer and load the state of this one into it")
        changed = {}
        for i, owner in enumerate(self.owners):
            if owner is None:
                continue
            grad, known = owner.grad, grads._keep[i]
            if grad is None:
                raise InvalidArgumentError(
                    f"{self._labels.label(i)}.grad is None; call backward() first, and leave a parameter that takes no"
                    " part in the loss out, or set its requires_grad to False")
            if known.source is None or known.source() is not grad or grad.data_ptr() != known.address:
                changed[i] = grad
        if changed:
            labels = trees.Leaves("", self._labels.names, [f"{self._labels.label(i)}.grad" for i in range(len(grads))])
            grads._point_at(labels, [
                as_tensor(changed[i], argument=labels.label(i), any_order=True, writable=not grads.read_only)
                if i in changed else tensor for i, tensor in enumerate(grads._keep)])

    def zero(self, set_to_none: bool) -> bool:
        """Does what zero_grad does, if all gradients are PyTorch's; else False."""
        owners = [owner for owner in self.owners if owner is not None]
        if len(owners) < len(self.owners):
            return False
        for owner in owners:
            if set_to_none:
                owner.grad = None
            elif owner.grad is not None:
                owner.grad.detach_().zero_()
        return True
