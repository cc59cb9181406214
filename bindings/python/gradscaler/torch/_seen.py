# SPDX-License-Identifier: Apache-2.0
"""What tensors are: dtype, device, shape, strides and address of many at once, and whether they still are the same.

The optimizers ask this of all parameters and gradients in every step.
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


class Looked(NamedTuple):
    """A list of tensors. `layout` is equal if dtypes, devices, shapes, strides and places of None are."""

    layout: Any
    addresses: bytes
    #: A byte for each, 0 for None.
    present: bytes

    def each(self) -> Sequence[int]:
        return memoryview(self.addresses).cast("Q")

    def pick(self, indices: Sequence[int]) -> Looked:
        """Some of them, without a layout."""
        each = self.each()
        return Looked(None, struct.pack(f"={len(indices)}Q", *(each[i] for i in indices)),
                      bytes(self.present[i] for i in indices))


def exchange_api() -> Any:
    """PyTorch's functions for C, which it has since 2.10; None before."""
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


#: What DLPack knows all of, but whether they are negated.
_TYPES = (torch.Tensor, torch.nn.Parameter)


def look(tensors: list[Any], asks: bool = True) -> Looked:
    """Looks at every tensor of a list, at some 100 ns each.

    Half of it goes to asking whether it is negated, for which no tensor has to be asked that is where it was.
    """
    found = _viewed(tensors, asks, None)
    # Before PyTorch 2.10, or a tensor that DLPack does not know: one that was accepted is read by attributes.
    return _looked(tensors, list(map(_described, tensors))) if found is None else found


def look_again(tensors: list[Any], layout: Any) -> Looked | None:
    """The same of tensors that have a layout, but that each may be None; None if one has another."""
    found = _viewed(tensors, True, layout) if isinstance(layout, bytes) else None
    if found is not None or isinstance(layout, bytes):
        return found
    same = all(tensor is None or _described(tensor) == own for tensor, own in zip(tensors, layout, strict=True))
    return _looked(tensors, layout) if same else None


def _viewed(tensors: list[Any], asks: bool, layout: bytes | None) -> Looked | None:
    exchange = exchange_api()
    if exchange is None:
        return None
    found = native.tensors_view(exchange, tensors, _TYPES, torch.Tensor.is_neg if asks else None, layout)
    return None if found is None else Looked(*found)


def _looked(tensors: list[Any], layout: Any) -> Looked:
    return Looked(layout, struct.pack(f"={len(tensors)}Q", *map(_address, tensors)),
                  bytes(tensor is not None for tensor in tensors))


def _described(tensor: Any) -> Any:
    if tensor is None or tensor.layout is not torch.strided:
        return tensor if tensor is None else tensor.layout
    return type(tensor), tensor.dtype, tensor.device, tensor.shape, tensor.stride(), tensor.is_neg()


def _address(tensor: Any) -> int:
    return int(tensor.data_ptr()) if tensor is not None and torch_memory.is_plain(tensor) and (
        tensor.layout is torch.strided) else 0


class Seen:
    def __init__(self, params: list[Any], structure: Any) -> None:
        self.tensors = params
        self.sharded = any(map(is_dtensor, params))
        self.structure = structure
        #: Whether some of the gradients are copies, as of :func:`in_order`.
        self.copied = False
        self._params = look(self._local(params))
        self._grads: Any = None

    def _local(self, tensors: list[Any]) -> list[Any]:
        return list(map(local, tensors)) if self.sharded else tensors

    def is_of(self, params: list[Any]) -> bool:
        return len(params) == len(self.tensors) and all(map(operator.is_, self.tensors, params))

    def are_alike(self, grads: list[Any]) -> bool:
        """Whether all are plain, and each gradient is None or has its parameter's dtype, device, shape and strides.

        False where there are ranks, whose parameters may be parts.
        """
        if self.sharded or (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return False
        return isinstance(self._params.layout, bytes) and look_again(grads, self._params.layout) is not None

    def use(self, grads: list[Any], copied: bool = False) -> None:
        """Takes the gradients that the plans are made of. They may be None later; those that are None stay so."""
        self.copied = copied
        self._grads = look(self._local(grads)).layout

    def look(self, grads: list[Any]) -> Looked | None:
        """Looks at `grads`, of now; None if anything but their places is not what it was."""
        found = look_again(self._local(grads), self._grads)
        same = found is not None and look(self._local(self.tensors), asks=False) == self._params
        return found if same else None


def placed_grads(params: list[Any], sharded: bool) -> list[Any]:
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
