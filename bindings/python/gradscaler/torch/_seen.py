# SPDX-License-Identifier: Apache-2.0
"""What tensors are: dtype, device, shape, strides and address of many at once, and whether they still are the same.

The optimizers ask this of all parameters and gradients in every step, in one pass in C: with many small parameters it
takes longer than the step.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import torch_memory
from .._native import native
from ._shards import is_dtensor, local, placed_as

try:
    #: PyTorch's functions for C.
    EXCHANGE: Any = torch.Tensor.__dlpack_c_exchange_api__
except AttributeError:
    raise ImportError(f"gradscaler.torch needs PyTorch 2.10 or later; this is {torch.__version__}") from None
_TYPES = (torch.Tensor, torch.nn.Parameter)


class Looked(NamedTuple):
    """A list of tensors. `layout` is equal if dtypes, devices, shapes, strides and places of None are."""

    layout: bytes
    addresses: bytes
    #: A byte for each, 0 for None.
    present: bytes

    def each(self) -> Sequence[int]:
        return memoryview(self.addresses).cast("Q")

    def pick(self, indices: Sequence[int]) -> Looked:
        """Some of them, without a layout."""
        each = self.each()
        return Looked(b"", struct.pack(f"={len(indices)}Q", *(each[i] for i in indices)),
                      bytes(self.present[i] for i in indices))


def _types_of(*lists: list[Any]) -> tuple[Any, ...]:
    """PyTorch's own classes, and those in `lists` that are plain too."""
    found = {type(tensor) for tensors in lists for tensor in tensors}.difference(_TYPES)
    return (*_TYPES, *filter(torch_memory.is_plain_class, found))


def look(tensors: list[Any]) -> Looked | None:
    """Looks at every tensor of a list; None if DLPack cannot describe one."""
    found = native.tensors_view(EXCHANGE, tensors, _types_of(tensors), torch.Tensor.is_neg)
    return None if found is None else Looked(*found)


class Seen:
    """The parameters of an optimizer, and the gradients that its plans were made of."""

    def __init__(self, params: list[Any], structure: Any) -> None:
        self.tensors = list(params)
        self.sharded = any(map(is_dtensor, params))
        self.structure = structure
        # Whether some of the gradients are copies, as of in_order().
        self._copied = False
        # For native.step_view(); None if DLPack cannot describe all parameters.
        self._known: Any = None

    @property
    def tells(self) -> bool:
        """Whether :meth:`look` calls `tell` in the same pass."""
        return not self.sharded and not self._copied

    def grads(self) -> list[Any]:
        """Those of now, placed as the parameters."""
        return [placed_as(p.grad, p) for p in self.tensors] if self.sharded else [p.grad for p in self.tensors]

    def _local(self, tensors: list[Any]) -> list[Any]:
        return list(map(local, tensors)) if self.sharded else tensors

    def _know(self, params: list[Any], grads: list[Any], layout: bytes | None = None) -> None:
        looked = look(params)
        self._known = looked and (_types_of(params, grads), torch.Tensor.is_neg, params, looked.layout,
                                  looked.addresses, looked.layout if layout is None else layout)

    def are_alike(self, grads: list[Any]) -> bool:
        """Whether all are plain, and each gradient is None or has its parameter's dtype, device, shape and strides.

        False where there are ranks, whose parameters may be parts.
        """
        if self.sharded or (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return False
        self._know(self.tensors, grads)
        return self.look(self.tensors, grads) is not None

    def use(self, expected: list[Any], grads: list[Any], copied: bool) -> tuple[list[Any], Looked] | None:
        """Looks at `grads`, of now. `expected` are those that the plans are made of; later they may be None, and those
        that are None stay so."""
        self._copied = copied
        expected = self._local(expected)
        looked = look(expected)
        self._know(self._local(self.tensors), expected, looked and looked.layout)
        if self._known is not None:
            return self.look(self.tensors, grads)
        looked = look(self._local(grads))
        return looked and (grads, looked)

    def look(self, params: list[Any], grads: list[Any] | None = None, tell: Any = None) -> (
            tuple[list[Any], Looked] | None):
        """Looks at `params` and their gradients, by default those of now. Returns these; None if anything but their
        places is not what it was. `tell` may be called with those that have a gradient; see :attr:`tells`."""
        if self._known is None:
            return None
        if self.tells:
            found = native.step_view(EXCHANGE, params, grads, self._known, tell)
            return found and (found[0], Looked(b"", *found[1:]))
        if len(params) != len(self.tensors) or not all(map(operator.is_, params, self.tensors)):
            return None
        if grads is None:
            grads = list(map(in_order, self.grads(), params)) if self._copied else self.grads()
        here = self._local(params)
        found = native.step_view(EXCHANGE, here, self._local(grads), (*self._known[:2], here, *self._known[3:]),
                                 None)
        return found and (grads, Looked(b"", *found[1:]))


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
