# SPDX-License-Identifier: Apache-2.0
"""Snapshots of tensors (dtype, device, shape, strides, address), and the guard that compares them in each step.

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
from ._shards import is_dtensor, local, with_placements_of

try:
    #: PyTorch's functions for C.
    DLPACK_API: Any = torch.Tensor.__dlpack_c_exchange_api__
except AttributeError:
    raise ImportError(f"gradscaler.torch needs PyTorch 2.10 or later; this is {torch.__version__}") from None
_TYPES = (torch.Tensor, torch.nn.Parameter)


class Snapshot(NamedTuple):
    """The memory of a list of tensors. `layout` is equal if dtypes, devices, shapes, strides and places of None are."""

    layout: bytes
    addresses: bytes
    #: A byte for each, 0 for None.
    present: bytes

    def address_list(self) -> Sequence[int]:
        return memoryview(self.addresses).cast("Q")

    def select(self, indices: Sequence[int]) -> Snapshot:
        """The snapshot of some of them, without a layout."""
        addresses = self.address_list()
        return Snapshot(b"", struct.pack(f"={len(indices)}Q", *(addresses[i] for i in indices)),
                        bytes(self.present[i] for i in indices))


def _types_of(*lists: list[Any]) -> tuple[Any, ...]:
    """PyTorch's own classes, and those in `lists` that are plain too."""
    found = {type(tensor) for tensors in lists for tensor in tensors}.difference(_TYPES)
    return (*_TYPES, *filter(torch_memory.is_plain_class, found))


def take_snapshot(tensors: list[Any]) -> Snapshot | None:
    """The snapshot of a list; None if DLPack cannot describe one of its tensors."""
    found = native.tensors_view(DLPACK_API, tensors, _types_of(tensors), torch.Tensor.is_neg)
    return None if found is None else Snapshot(*found)


class StepGuard:
    """Guards the plans of an optimizer: tells in each step whether its parameters and gradients are those of the plans.

    `structure` is what else the plans depend on, for the caller to compare.
    """

    def __init__(self, params: list[Any], structure: Any) -> None:
        self.tensors = list(params)
        self.sharded = any(map(is_dtensor, params))
        self.structure = structure
        # Whether some of the gradients are copies, as of in_param_order().
        self._has_copies = False
        # For native.step_view(); None if DLPack cannot describe all parameters.
        self._recorded: Any = None

    @property
    def marks_written(self) -> bool:
        """True if :meth:`check` calls `mark_written` in the same pass."""
        return not self.sharded and not self._has_copies

    def grads(self) -> list[Any]:
        """The gradients of now, with the placements of the parameters."""
        return [with_placements_of(p.grad, p) for p in self.tensors] if self.sharded else [p.grad for p in self.tensors]

    def _local(self, tensors: list[Any]) -> list[Any]:
        return list(map(local, tensors)) if self.sharded else tensors

    def _record(self, params: list[Any], grads: list[Any], layout: bytes | None = None) -> None:
        snapshot = take_snapshot(params)
        self._recorded = snapshot and (_types_of(params, grads), torch.Tensor.is_neg, params, snapshot.layout,
                                       snapshot.addresses, snapshot.layout if layout is None else layout)

    def are_plain_pairs(self, grads: list[Any]) -> bool:
        """Returns whether all are plain, and each gradient is None or has the dtype, device, shape and strides of its
        parameter.

        False where there are ranks, whose parameters may be parts.
        """
        if self.sharded or (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return False
        self._record(self.tensors, grads)
        return self.check(self.tensors, grads) is not None

    def expect(self, expected: list[Any], grads: list[Any], has_copies: bool) -> tuple[list[Any], Snapshot] | None:
        """Checks `grads`, of now, and from then on others, against `expected`, of which the plans are made. Later they
        may be None, and those that are None stay so. Returns as :meth:`check` does."""
        self._has_copies = has_copies
        expected = self._local(expected)
        snapshot = take_snapshot(expected)
        self._record(self._local(self.tensors), expected, snapshot and snapshot.layout)
        if self._recorded is not None:
            return self.check(self.tensors, grads)
        snapshot = take_snapshot(self._local(grads))
        return snapshot and (grads, snapshot)

    def check(self, params: list[Any], grads: list[Any] | None = None, mark_written: Any = None) -> (
            tuple[list[Any], Snapshot] | None):
        """Returns the gradients of `params`, by default those of now, and their snapshot. None if anything but the
        addresses of the gradients is not what it was. `mark_written` may be called with the parameters that have a
        gradient; see :attr:`marks_written`."""
        if self._recorded is None:
            return None
        if self.marks_written:
            found = native.step_view(DLPACK_API, params, grads, self._recorded, mark_written)
            return found and (found[0], Snapshot(b"", *found[1:]))
        if len(params) != len(self.tensors) or not all(map(operator.is_, params, self.tensors)):
            return None
        if grads is None:
            grads = list(map(in_param_order, self.grads(), params)) if self._has_copies else self.grads()
        here = self._local(params)
        found = native.step_view(DLPACK_API, here, self._local(grads), (*self._recorded[:2], here, *self._recorded[3:]),
                                 None)
        return found and (grads, Snapshot(b"", *found[1:]))


def in_param_order(grad: Any, p: Any) -> Any:
    """A gradient in the memory order of its parameter: itself, or a copy of one that is transposed, expanded, a slice.

    Backward leaves them in the order of the parameter; torch.autograd.grad and code of users need not.
    """
    if grad is None or not torch_memory.is_plain(grad) or grad.layout is not torch.strided or grad.is_nested:
        return grad
    if grad.shape != p.shape or grad.device != p.device or (has_same_order(grad, p) and not grad.is_neg()):
        return grad
    return torch.empty_like(p, dtype=grad.dtype, requires_grad=False).copy_(grad.detach())


def has_same_order(tensor: Any, p: Any) -> bool:
    """Returns whether the elements of two tensors of one shape stand in the same order in memory."""
    strides, expected = tensor.stride(), p.stride()
    return strides == expected or all(
        a == b for a, b, extent in zip(strides, expected, p.shape, strict=True) if extent != 1)
