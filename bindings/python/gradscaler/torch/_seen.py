# SPDX-License-Identifier: Apache-2.0
"""The parameters and gradients that the plans of :mod:`._optim` were made of, and whether those of now are the same."""

from __future__ import annotations

import operator
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import torch_memory
from ._plan import Looked, look
from ._shards import is_dtensor, local, placed_as


class Seen:
    """What the parameters and gradients were when the plans were made."""

    def __init__(self, params: list[Any], grads: list[Any], structure: Any, copied: bool = False) -> None:
        self.tensors = params
        #: Whether some of `grads` are copies, as of :func:`in_order`.
        self.copied = copied
        self.sharded = any(map(is_dtensor, params))
        self.structure = structure
        self._params = self._look(params)
        self._grads = self._look(grads).layout

    def _look(self, tensors: list[Any], asks: bool = True) -> Looked:
        return look([local(tensor) for tensor in tensors] if self.sharded else tensors, asks)

    def is_of(self, params: list[Any]) -> bool:
        """Whether these are the parameters."""
        return len(params) == len(self.tensors) and all(map(operator.is_, self.tensors, params))

    def addresses(self, grads: list[Any]) -> bytes | None:
        """Where `grads`, of now, are; None if anything else is not what it was."""
        found = self._look(grads)
        same = found.layout == self._grads and self._look(self.tensors, asks=False) == self._params
        return found.addresses if same else None


def placed_grads(params: list[Any], sharded: bool) -> list[Any]:
    """The gradients of now, with the placements of their parameters."""
    return [placed_as(p.grad, p) for p in params] if sharded else [p.grad for p in params]


def in_order(grad: Any, p: Any) -> Any:
    """A gradient in the memory order of its parameter: itself, or a copy of one that is transposed, expanded, a slice.

    Backward leaves them in the order of the parameter; torch.autograd.grad and code of users need not.
    """
    if grad is None or not torch_memory.is_plain(grad) or grad.layout is not torch.strided or grad.is_nested:
        return grad
    if grad.shape != p.shape or grad.device != p.device or (is_in_order(grad, p) and not grad.is_neg()):
        return grad
    return torch.empty_like(p, dtype=grad.dtype, requires_grad=False).copy_(grad.detach())


def is_in_order(tensor: Any, p: Any) -> bool:
    """Whether the elements of two tensors of one shape stand in the same order in memory."""
    strides, expected = tensor.stride(), p.stride()
    return strides == expected or all(
        a == b for a, b, extent in zip(strides, expected, p.shape, strict=True) if extent != 1)
