# SPDX-License-Identifier: Apache-2.0
"""The gradients of now, for :mod:`._optim`: whether all is what it was when the plans were made, and where they are.

Gradients that do not stand as their parameter does are made anew for the step, and held until its end.
"""

from __future__ import annotations

import operator
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import torch_memory
from .._native import native
from . import _raw
from ._plan import Looked, Plan, exchange_api, look
from ._shards import is_dtensor, local, placed_as


class Seen:
    """What the parameters and gradients were when the plans were made."""

    def __init__(self, params: list[Any], grads: list[Any], structure: Any, copied: bool = False) -> None:
        """`copied` says whether some of `grads` are copies, as of :func:`in_order`."""
        self.tensors = params
        # Gradients by index, of those that are not .grad, which nobody else may hold.
        self._made: dict[int, Any] = {}
        self._copied = copied
        self.sharded = any(map(is_dtensor, params))
        self.structure = structure
        self._params, grads_seen = self._look(params, grads)
        self._grads = grads_seen.layout
        self._record = None
        if not self.sharded and not copied:
            self._record = _raw.record(params, self._params.addresses, grads_seen.addresses)
        self._keep_made(params, grads, _raw.are_grads_replaced())

    def let_go(self) -> None:
        """After the step, for which alone gradients were made."""
        self._made = {}

    def grads(self, plan: Plan) -> list[Any]:
        """The gradients of a plan now, as plain tensors; None for those that are gone."""
        return [local(self._made.get(index, self.tensors[index].grad)) for index in plan.indices]

    def _keep_made(self, params: list[Any], grads: list[Any], replaced: bool) -> None:
        self._made = {}
        if replaced or self.sharded or self._copied:
            self._made = {index: grad for index, (p, grad) in enumerate(zip(params, grads, strict=True))
                          if replaced or grad is not p.grad}

    def _look(self, params: list[Any], grads: list[Any]) -> tuple[Looked, Looked]:
        if self.sharded:
            params, grads = [local(p) for p in params], [local(grad) for grad in grads]
        return look(params), look(grads)

    def addresses(self, groups: list[dict[str, Any]]) -> bytes | None:
        """Where the gradients are now; None if anything else is not what it was."""
        lists = [group["params"] for group in groups]
        self._made = {}
        replaced = _raw.are_grads_replaced()
        unchanged = None if self._record is None or replaced else _raw.same(self._record, lists)
        if unchanged is not None:
            return unchanged
        # In doubt PyTorch is asked.
        exchange = exchange_api()
        if exchange is not None and not replaced and not self.sharded and not self._copied and (
                isinstance(self._params.layout, bytes) and isinstance(self._grads, bytes)):
            found: bytes | None = native.torch_same(exchange, lists, self.tensors, *self._params, self._grads,
                                                    torch.Tensor, torch.nn.Parameter)
            # DLPack does not tell that a view is negated.
            now = (p.grad for params in lists for p in params)
            return None if any(grad is not None and grad.is_neg() for grad in now) else found
        params = [p for found in lists for p in found]
        if len(params) != len(self.tensors) or not all(map(operator.is_, self.tensors, params)):
            return None
        grads = placed_grads(params, self.sharded)
        if self._copied:
            grads = list(map(in_order, grads, params))
        self._keep_made(params, grads, replaced)
        params_seen, grads_seen = self._look(params, grads)
        return grads_seen.addresses if params_seen == self._params and grads_seen.layout == self._grads else None


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
