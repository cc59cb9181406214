# SPDX-License-Identifier: Apache-2.0
"""Whether tensors may be inspected where PyTorch keeps what it knows of them, and of which; see torch_raw.h.

PyTorch promises no layout of its objects. It is taken for known only of a version that these tests have been run with,
and if all that is read says what PyTorch says, of tensors of every kind that matters and after every change that
matters. Of the tensors of an optimizer the addresses are compared once more. Otherwise :mod:`._plan` looks at them.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, NamedTuple

import torch  # type: ignore[import-not-found, unused-ignore]

from .._native import native

#: What PyTorch's stubs do not have.
_private: Any = torch

#: Versions of PyTorch whose layout has been tested.
_TESTED = (["2", "13"],)


class Known(NamedTuple):
    """What has no name: the virtual functions of a plain tensor, and the tensor that stands for a missing gradient."""

    plain: int
    absent: int


@functools.cache
def known() -> Known | None:
    """None if the layout is not known."""
    if not sys.platform.startswith("linux") or torch.__version__.split(".")[:2] not in _TESTED:
        return None
    try:
        # Whatever mode the caller is in.
        with torch._C.DisableTorchFunction(), torch.inference_mode(False), torch.no_grad():
            return _compared()
    except (AttributeError, TypeError, RuntimeError):
        return None


def _compared() -> Known | None:
    """In an order in which no address is followed that has not been compared."""
    tensors = [torch.empty((2,) * dims, dtype=dtype, device="cpu") for dims in range(6)
               for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)]
    tensors += [tensors[-1][1, :, 1], tensors[-1].permute(4, 2, 0, 1, 3), tensors[-1][0, 0, 0].t()]
    param = torch.nn.Parameter(torch.empty(3, device="cpu"))
    if not all(_has_fields(tensor) for tensor in [*tensors, param]):
        return None
    first, other = tensors[0], tensors[1]
    fields = native.torch_raw_fields(first)
    # Autograd's data, extra data, the counter of versions, and the flags of dispatching.
    if fields[1] or native.torch_raw_fields(param)[1] == 0 or fields[2] or (
            fields[3] in (0, native.torch_raw_fields(other)[3])) or (
            native.torch_raw_fields(first.detach())[3] != fields[3]) or (
            native.torch_raw_fields(_private._neg_view(first))[-1] == fields[-1]):
        return None
    return _compared_behind(tensors, param, fields[5])


def _has_fields(tensor: Any) -> bool:
    if native.torch_raw_address(tensor) != tensor._cdata:
        return False
    fields = native.torch_raw_fields(tensor)
    dims, words = tensor.dim(), fields[7:]
    return bool(fields[0] == tensor.untyped_storage()._cdata and fields[4] == id(tensor) and fields[6] == dims and
                words[:dims] == tuple(tensor.shape) and words[5:5 + dims] == tensor.stride() and
                words[10:12] == (tensor.storage_offset(), tensor.numel()))


def _compared_behind(tensors: list[Any], param: Any, plain: int) -> Known | None:
    types = torch.Tensor, torch.nn.Parameter
    absent = native.torch_raw_behind(param)[0]
    for tensor in tensors:
        tensor.zero_()
        storage = tensor.untyped_storage()
        if native.torch_raw_behind(tensor)[1:] != (tensor._version, storage.data_ptr(), storage.nbytes(), 0):
            return None
        if not native.torch_raw_bump([tensor]) or native.torch_raw_behind(tensor)[1] != tensor._version:
            return None
    grads = [torch.ones(3, device="cpu"), torch.ones(6, device="cpu")[3:], None]
    for grad in grads:
        param.grad = grad
        if native.torch_raw_behind(param)[0] != (absent if grad is None else grad._cdata):
            return None
        found = native.torch_raw_record([param], types, plain, absent)
        if found is None or found[1:] != (_addresses([param]), _addresses([grad])) or (
                native.torch_raw_same(found[0], [[param]]) != found[2]):
            return None
    found = native.torch_raw_record(tensors, types, plain, absent)
    if found is None or found[1:] != (_addresses(tensors), _addresses([None] * len(tensors))):
        return None
    lazy = _private._lazy_clone(tensors[0])
    with torch.inference_mode():
        unversioned = torch.ones(1, device="cpu")
    if not native.torch_raw_behind(lazy)[4] or native.torch_raw_bump([unversioned]):
        return None
    return Known(plain, absent)


def _addresses(tensors: list[Any]) -> bytes:
    return b"".join((0 if tensor is None else tensor.data_ptr()).to_bytes(8, sys.byteorder) for tensor in tensors)


def record(params: list[Any], addresses: bytes, grad_addresses: bytes) -> Any:
    """What the tensors and their gradients are now, for :func:`same`; None if that cannot be told for sure.

    The addresses are those that PyTorch says. The caller holds `params` as long as the record.
    """
    layout = known()
    if layout is None:
        return None
    found = native.torch_raw_record(params, (torch.Tensor, torch.nn.Parameter), *layout)
    return found[0] if found is not None and found[1:] == (addresses, grad_addresses) else None


def same(recorded: Any, lists: list[Any]) -> bytes | None:
    """Where the gradients are now, if nothing else has changed; None if something has, or may have.

    Not where :func:`are_grads_replaced`.
    """
    found: bytes | None = native.torch_raw_same(recorded, lists)
    return found


def are_grads_replaced() -> bool:
    """Whether a mode is on in which ``.grad`` may be something else than what the parameter has."""
    if not torch._C._is_torch_function_mode_enabled():
        return False
    # This one, of torch.set_default_device, leaves it alone.
    alone = _private.utils._device.DeviceContext
    return any(type(mode) is not alone for mode in _private.overrides._get_current_function_mode_stack())


def increment_version(tensors: list[Any]) -> None:
    """As of PyTorch."""
    if known() is None or not native.torch_raw_bump(tensors):
        torch.autograd.graph.increment_version(tensors)
