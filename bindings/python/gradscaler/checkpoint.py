# SPDX-License-Identifier: Apache-2.0
"""Optimizer state as arrays by name, for torch.save, safetensors, npz and Orbax, and back.

A state array is called ``<slot>.<parameter>``, such as ``exp_avg.layer.weight``; ``steps`` and ``skipped_steps`` are
numbers beside them. Everything is checked before anything is changed. How PyTorch's optimizers keep their state is in
:mod:`.torch_state`.
"""

from __future__ import annotations

import array
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from . import torch_memory
from ._native import integer
from .arrays import as_tensor, tensor_array
from .device import default_context
from .errors import InvalidArgumentError
from .memory import SIZES, Tensor, same_order

if TYPE_CHECKING:
    from .optim import Optimizer

#: Saved names to those of here, or a function that maps them.
Rename = Mapping[str, str] | Callable[[str], str] | None

_COUNTS = ("steps", "skipped_steps")
_MOST = 1 << 53


def save(optimizer: Optimizer) -> dict[str, Any]:
    """Copies of all state, in tensors of PyTorch, arrays of NumPy or ``array.array``, by what the parameters are of."""
    make = _maker(optimizer)
    found: dict[str, Any] = {"steps": make.number(optimizer.steps), "skipped_steps": make.number(
        optimizer.skipped_steps)}
    blob, places = _blob(optimizer)
    for name, (begin, tensor) in places.items():
        found[name] = make.array(blob[begin:begin + tensor.nbytes], tensor)
    return found


def load(optimizer: Optimizer, arrays: Mapping[str, Any], rename: Rename, argument: str) -> None:
    """Restores :func:`save`'s, paired by name, whatever the order."""
    if not hasattr(arrays, "items"):
        raise InvalidArgumentError(f"{argument} is {type(arrays).__name__}; it must be a mapping from names to arrays")
    given = _renamed(arrays, rename, argument)
    blob, places = _blob(optimizer)
    names = [name for name in given if name not in _COUNTS]
    missing = [name for name in [*_COUNTS[:1], *places] if name not in given]
    unknown = [name for name in names if name not in places]
    if missing:
        extra = f"; unknown there is {unknown[0]!r}" if unknown else ""
        raise InvalidArgumentError(f"{argument}[{missing[0]!r}] is missing{extra}; parameters that were renamed need"
                                   " rename=")
    if unknown:
        raise InvalidArgumentError(f"{argument}[{unknown[0]!r}] is unknown: this optimizer has no such state")
    counts = [integer(f"{argument}[{name!r}]", given.get(name, 0), 0, _MOST) for name in _COUNTS]
    for name, (begin, tensor) in places.items():
        blob[begin:begin + tensor.nbytes] = _bytes_of(given[name], tensor, f"{argument}[{name!r}]")
    optimizer._handle.load(blob, optimizer.stream)
    optimizer._handle.set_steps(*counts, optimizer.stream)


def _blob(optimizer: Optimizer) -> tuple[bytearray, dict[str, tuple[int, Tensor]]]:
    """The library's own form of the state, which is on the host, and where each state tensor begins in it."""
    blob = bytearray(optimizer._handle.save_size())
    optimizer._handle.save(blob, optimizer.stream)
    tensors = [(f"{slot}.{name}", tensor) for slot, found in optimizer.state.items()
               for name, tensor in zip(optimizer.names, found, strict=True)]
    # State comes last, slot after slot.
    begin = len(blob) - sum(tensor.nbytes for _, tensor in tensors)
    places = {}
    for name, tensor in tensors:
        places[name] = (begin, tensor)
        begin += tensor.nbytes
    return blob, places


def _renamed(arrays: Mapping[str, Any], rename: Rename, argument: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in arrays.items():
        name = str(key)
        slot, dot, parameter = name.partition(".")
        if dot and rename is not None:
            name = f"{slot}.{renamed(parameter, rename)}"
        if name in found:
            raise InvalidArgumentError(f"rename makes two entries of {argument} {name!r}")
        found[name] = value
    return found


def renamed(name: str, rename: Rename) -> str:
    """What a saved parameter is called here."""
    if rename is None:
        return name
    return rename.get(name, name) if isinstance(rename, Mapping) else rename(name)


def _bytes_of(value: Any, target: Tensor, argument: str) -> bytearray:
    """The elements of `value` in the dtype and order of `target`; only exact conversions."""
    if torch_memory.is_torch(value):
        value = value.detach().cpu()
    found = as_tensor(value, argument=argument, writable=False, any_order=True)
    shape = target.shape
    if found.count != target.count or None not in (found.shape, shape) and found.shape != shape:
        raise InvalidArgumentError(f"{argument} has shape {found.shape}, but the parameter has {shape}")
    if SIZES[found.dtype] > SIZES[target.dtype] or (found.dtype != target.dtype and found.dtype == "float64"):
        raise TypeError(f"{argument} has dtype {found.dtype}, which does not fit into {target.dtype}")
    if found.device != "cpu":
        raise ValueError(f"{argument} is on {found.device}; pass it on the CPU")
    if not same_order(found, target):
        found = as_tensor(_in_order(value, target, argument), argument=argument, writable=False, any_order=True)
    result = bytearray(target.nbytes)
    if target.count:
        copy = as_tensor(result, dtype=target.dtype)
        default_context("cpu")._handle.cast(tensor_array([found]), tensor_array([copy]), 0)
    return result


def _in_order(value: Any, target: Tensor, argument: str) -> Any:
    if torch_memory.is_torch(value):
        torch: Any = sys.modules["torch"]
        strides = target.strides or torch.empty(target.shape, device="meta").stride()
        return torch.empty_strided(target.shape, strides, dtype=value.dtype).copy_(value)
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        raise ValueError(f"{argument} has its elements in another order than the parameter; pass a copy in that order")
    value = numpy.asarray(value)
    if target.strides is None:
        return numpy.ascontiguousarray(value)
    whole = numpy.empty(target.count, value.dtype)
    view = _strided(whole, target)
    view[...] = value
    return view


def _strided(flat: Any, tensor: Tensor) -> Any:
    numpy: Any = sys.modules["numpy"]
    strides = [stride * flat.itemsize for stride in tensor.strides or ()]
    return numpy.lib.stride_tricks.as_strided(flat, tensor.shape, strides)


class _Plain:
    """Makes what the standard library has: flat arrays and integers."""

    def number(self, value: int) -> Any:
        return value

    def array(self, data: bytearray, tensor: Tensor) -> Any:
        if tensor.strides is not None:
            raise ValueError("the state is in another than C order; import numpy to save it")
        return array.array("d" if tensor.dtype == "float64" else "f", bytes(data))


class _Numpy(_Plain):
    def number(self, value: int) -> Any:
        return sys.modules["numpy"].array(value, "int64")

    def array(self, data: bytearray, tensor: Tensor) -> Any:
        numpy: Any = sys.modules["numpy"]
        flat = numpy.frombuffer(bytes(data), tensor.dtype)
        if tensor.strides is not None:
            return _strided(flat, tensor).copy("C")
        return flat.reshape(tensor.shape if tensor.shape is not None else -1).copy()


class _Torch(_Plain):
    def number(self, value: int) -> Any:
        return sys.modules["torch"].tensor(value)

    def array(self, data: bytearray, tensor: Tensor) -> Any:
        torch: Any = sys.modules["torch"]
        dtype = getattr(torch, tensor.dtype)
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        if tensor.strides is not None:
            return flat.as_strided(tensor.shape, tensor.strides).contiguous()
        return flat.reshape(tensor.shape if tensor.shape is not None else (-1,))


def _maker(optimizer: Optimizer) -> _Plain:
    if any(tensor.source is not None for tensor in optimizer.params):
        return _Torch()
    return _Numpy() if "numpy" in sys.modules else _Plain()
