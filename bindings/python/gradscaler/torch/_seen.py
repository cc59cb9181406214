# SPDX-License-Identifier: Apache-2.0
"""The parameters and gradients that the plans of :mod:`._optim` were made of, and whether those of now are the same."""

from __future__ import annotations

import operator
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import torch_memory
from ._plan import Looked, look, look_again
from ._shards import is_dtensor, local, placed_as


class Seen:
    """What the parameters and gradients were when the plans were made."""

    def __init__(self, params: list[Any], grads: list[Any], structure: Any, copied: bool = False) -> None:
        """`grads` may be None later; where they are None here, they may be nothing else."""
        self.tensors = params
        #: Whether some of `grads` are copies, as of :func:`in_order`.
        self.copied = copied
        self.sharded = any(map(is_dtensor, params))
        self.structure = structure
        self._params = look(self._local(params))
        self._grads = look(self._local(grads)).layout

    def _local(self, tensors: list[Any]) -> list[Any]:
        return list(map(local, tensors)) if self.sharded else tensors

    def is_of(self, params: list[Any]) -> bool:
        """Whether these are the parameters."""
        return len(params) == len(self.tensors) and all(map(operator.is_, self.tensors, params))

    def look(self, grads: list[Any]) -> Looked | None:
        """Looks at `grads`, of now; None if anything but their places is not what it was."""
        found = look_again(self._local(grads), self._grads)
        same = found is not None and look(self._local(self.tensors), asks=False) == self._params
        return found if same else None


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
