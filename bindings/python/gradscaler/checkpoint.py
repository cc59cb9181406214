# SPDX-License-Identifier: Apache-2.0
"""Optimizer state as arrays by name, for torch.save, safetensors, npz and Orbax, and back.

A state array is called ``<slot>.<parameter>``, such as ``exp_avg.layer.weight``. ``steps`` and ``skipped_steps`` are
numbers, and so is ``steps.<parameter>``, for a parameter that was absent from some steps. Everything is checked before
anything is changed.
"""

from __future__ import annotations

import array
import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import formats, torch_memory
from ._native import integer, native
from .arrays import as_tensor, tensor_array
from .errors import BadStateError, InvalidArgumentError
from .look import look
from .memory import SIZES, Tensor, same_order
from .scaling import is_cupy

if TYPE_CHECKING:
    from .optim import Optimizer

#: Saved names to those of here, or a function that maps them.
Rename = Mapping[str, str] | Callable[[str], str] | None

_COUNTS = ("steps", "skipped_steps")
_MOST = 1 << 53
#: What arrays have dtypes for.
_PLAIN = (native.FP32, native.FP64)


def save(optimizer: Optimizer, full: bool = False) -> dict[str, Any]:
    """Copies of all state. With `full` codes become float32, and remainders are left out."""
    _require_training(optimizer)
    make = _maker(optimizer)
    sources, held = _places(optimizer), optimizer._codes()
    places, codes = sources, held
    if full:
        codes = {slot: code if code == native.FP64 else native.FP32 for slot, code in held.items()
                 if slot != formats.REMAINDER}
        places = {name: tensor if tensor.dtype == "float64" else replace(tensor, dtype="float32")
                  for name, tensor in places.items() if name.partition(".")[0] in codes}
    copies = {name: make.empty(tensor) for name, tensor in places.items()}
    make.settle(optimizer.context.device)
    _copy(optimizer, sources, held, {name: _look(copy, name) for name, copy in copies.items()}, codes)
    # After the copies, whose stream these wait for.
    applied = optimizer.steps
    found: dict[str, Any] = {"steps": make.number(applied), "skipped_steps": make.number(optimizer.skipped_steps)}
    found.update({f"steps.{name}": make.number(steps)
                  for name, steps in zip(optimizer.names, optimizer.tensor_steps, strict=True) if steps != applied})
    for name in places:
        # One after the other, so that there are never two copies of all.
        found[name] = make.finished(copies.pop(name))
    return found


def load(optimizer: Optimizer, arrays: Mapping[str, Any], rename: Rename, argument: str) -> None:
    """Restores the arrays of :func:`save`, paired by name, in any order."""
    _require_training(optimizer)
    if not hasattr(arrays, "items"):
        raise InvalidArgumentError(f"{argument} is {type(arrays).__name__}; it must be a mapping from names to arrays")
    given = _renamed(arrays, rename, argument)
    places = {name: tensor for name, tensor in _places(optimizer).items() if not _is_scale(name)}
    # Scales go with their slots, and masters may begin as their weights.
    of_slot = {name for name in given if _is_scale(name) and name.replace(formats.SCALE + ".", ".", 1) in places}
    optional = {name for name in places if name.startswith(formats.REMAINDER + ".")}
    known = {*_COUNTS, *places, *of_slot, *(f"steps.{name}" for name in optimizer.names)}
    missing = [name for name in [*_COUNTS[:1], *places] if name not in given and name not in optional]
    unknown = [name for name in given if name not in known]
    if missing:
        extra = f"; unknown there is {unknown[0]!r}" if unknown else ""
        raise InvalidArgumentError(f"{argument}[{missing[0]!r}] is missing{extra}; parameters that were renamed need"
                                   " rename=")
    if unknown:
        raise InvalidArgumentError(f"{argument}[{unknown[0]!r}] is unknown: this optimizer has no such state")
    counts = [integer(f"{argument}[{name!r}]", given.get(name, 0), 0, _MOST) for name in _COUNTS]
    each = [integer(f"{argument}['steps.{name}']", given[f"steps.{name}"], 0, counts[0])
            if f"steps.{name}" in given else counts[0] for name in optimizer.names]
    make = _maker(optimizer)
    codes, staged = optimizer._codes(), {}
    for name, tensor in places.items():
        scales = given.get(_scales_of(name))
        if codes[name.partition(".")[0]] in _PLAIN and scales is None and not _has_bits(given[name]):
            staged[name] = _converted(given[name], tensor, f"{argument}[{name!r}]", make, optimizer)
        else:
            staged.update(_encoded(given.get(name), scales, name, tensor, f"{argument}[{name!r}]", make, optimizer))
    make.settle(optimizer.context.device)
    # From here on nothing can be wrong.
    _copy(optimizer, {name: _look(value, argument) for name, value in staged.items()}, codes, _places(optimizer), codes)
    optimizer._handle.set_steps(*counts, optimizer.stream)
    if any(steps != counts[0] for steps in each):
        # The largest count of a tensor may be less than that of the optimizer.
        optimizer.tensor_steps = each
    _wait(optimizer)


def _require_training(optimizer: Optimizer) -> None:
    if optimizer._handle.evaluating():
        raise BadStateError("the parameters are averaged weights; call train() before state is saved or loaded")


def _places(optimizer: Optimizer) -> dict[str, Tensor]:
    return {f"{slot}.{name}": tensor for slot, found in optimizer.state.items()
            for name, tensor in zip(optimizer.names, found, strict=True)}


def _has_bits(value: Any) -> bool:
    """Whether an array has the bits of bfloat16, which NumPy does not have."""
    return getattr(value, "typecode", str(getattr(value, "dtype", ""))) in ("H", "uint16")


def _is_scale(name: str) -> bool:
    return name.partition(".")[0].endswith(formats.SCALE)


def _scales_of(name: str) -> str:
    return name.replace(".", formats.SCALE + ".", 1)


def _look(value: Any, argument: str, writable: bool = True) -> Tensor:
    return look(value, argument, None, writable, None)


def _copy(optimizer: Optimizer, sources: Mapping[str, Tensor], held: Mapping[str, int], targets: Mapping[str, Tensor],
          codes: Mapping[str, int]) -> None:
    """Copies state from slots of the dtypes `held` into slots of `codes`, with their scales."""

    def array(tensors: Mapping[str, Tensor], name: str, code: int) -> Any:
        tensor, scales = tensors[name], tensors.get(_scales_of(name))
        return formats.state_array(tensor.address, tensor.count, code, None if scales is None else scales.address)

    plain = []
    for name in targets:
        slot = name.partition(".")[0]
        if _is_scale(name):
            continue
        if held[slot] in _PLAIN and codes[slot] in _PLAIN:
            plain.append(name)
        else:
            optimizer.context._handle.convert_state(array(sources, name, held[slot]), None,
                                                    array(targets, name, codes[slot]), optimizer.stream)
    _cast(optimizer, [sources[name] for name in plain], [targets[name] for name in plain])


def _encoded(value: Any, scales: Any, name: str, target: Tensor, argument: str, make: _Plain,
             optimizer: Optimizer) -> dict[str, Any]:
    """A slot in the format that the optimizer has it in, of what was saved in any; None is zeros."""
    slot, codes = name.partition(".")[0], optimizer._codes()
    found = {name: make.empty(target)}
    if codes[slot] in formats.GROUPED:
        groups = formats.groups_of(target.count)
        found[_scales_of(name)] = make.empty(Tensor(0, groups, "uint8", target.device, shape=(groups,)))
    if value is None:
        if hasattr(found[name], "shape"):
            found[name][...] = 0
        return found
    value, scales = (None if each is None else _sent(each, target.device, make) for each in (value, scales))
    source = _look(value, argument, writable=False)
    _require_shape(source, target, argument)
    if not same_order(source, target):
        raise _other_order(argument)
    code = formats.held_code(optimizer._kind, slot, source.dtype, scales is not None)
    sources, found_scales, fits = {name: source}, "", True
    if scales is not None:
        looked = sources[_scales_of(name)] = _look(scales, argument, writable=False)
        found_scales = f" and {looked.count} scales"
        fits = (looked.dtype, looked.count) == ("uint8", formats.groups_of(source.count))
    if code is None or not fits:
        raise TypeError(f"{argument} has dtype {source.dtype}{found_scales}, which is no format of {slot}")
    make.settle(target.device)
    _copy(optimizer, sources, {slot: code}, {key: _look(each, argument) for key, each in found.items()}, codes)
    _wait(optimizer)
    return found


def _require_shape(found: Tensor, target: Tensor, argument: str) -> None:
    if found.count != target.count or None not in (found.shape, target.shape) and found.shape != target.shape:
        raise InvalidArgumentError(f"{argument} has shape {found.shape}, but the parameter has {target.shape}")


def _other_order(argument: str) -> ValueError:
    return ValueError(f"{argument} has its elements in another order than the parameter; pass a copy in that order")


def _sent(value: Any, device: str, make: _Plain) -> Any:
    if torch_memory.is_torch(value):
        return value.detach().to(device)
    if is_cupy(value):
        return value.get() if device == "cpu" else value
    return value if device == "cpu" else make.sent(value, device)


def _cast(optimizer: Optimizer, sources: list[Tensor], targets: list[Tensor]) -> None:
    optimizer.context._handle.cast(tensor_array(sources), tensor_array(targets), optimizer.stream)


def _wait(optimizer: Optimizer) -> None:
    """The library of the arrays may free what was read, and fill it, in another stream."""
    if optimizer.context.device != "cpu":
        _ = optimizer.steps


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
    if rename is None:
        return name
    return rename.get(name, name) if isinstance(rename, Mapping) else rename(name)


def _converted(value: Any, target: Tensor, argument: str, make: _Plain, optimizer: Optimizer) -> Any:
    """A copy of `value` in the dtype and order of `target`, on its device; only exact conversions."""
    if torch_memory.is_torch(value):
        value = value.detach().to(target.device)
    elif is_cupy(value) and target.device == "cpu":
        value = value.get()
    found = as_tensor(value, argument=argument, writable=False, any_order=True)
    _require_shape(found, target, argument)
    if SIZES[found.dtype] > SIZES[target.dtype]:
        raise TypeError(f"{argument} has dtype {found.dtype}, which does not fit into {target.dtype}")
    if found.device == "cpu" != target.device:
        value = make.sent(value, target.device)
        found = as_tensor(value, argument=argument, writable=False, any_order=True)
    if found.device != target.device:
        raise ValueError(f"{argument} is on {found.device}; it must be on {target.device}")
    copy = make.empty(target)
    if same_order(found, target):
        make.settle(target.device)
        _cast(optimizer, [found], [_look(copy, argument)])
        _wait(optimizer)
    else:
        make.fill(copy, value, argument)
    return copy


def _out_of_reach(device: str) -> ValueError:
    return ValueError(f"the state is on {device}; import cupy or torch first, which copies it")


class _Plain:
    """Makes what the standard library has: flat arrays and integers."""

    def number(self, value: int) -> Any:
        return value

    def empty(self, tensor: Tensor) -> Any:
        """Memory of the dtype, order and device of a state tensor."""
        if tensor.device != "cpu":
            raise _out_of_reach(tensor.device)
        if tensor.strides is not None:
            raise ValueError("the state is not in C order; import numpy or torch first, which copies it")
        codes = {"float64": "d", "float32": "f", "bfloat16": "H", "int16": "h", "int8": "b"}
        return array.array(codes.get(tensor.dtype, "B"), bytes(tensor.nbytes))

    def settle(self, device: str) -> None:
        """Waits until nothing that the library of the arrays has enqueued uses the memory of :meth:`empty` any more."""

    def sent(self, value: Any, device: str) -> Any:
        raise _out_of_reach(device)

    def finished(self, found: Any) -> Any:
        """The same, contiguous."""
        return found

    def fill(self, copy: Any, value: Any, argument: str) -> None:
        raise _other_order(argument)


class _Numpy(_Plain):
    _module = "numpy"

    def number(self, value: int) -> Any:
        return sys.modules["numpy"].array(value, "int64")

    def empty(self, tensor: Tensor) -> Any:
        return self._empty(tensor) if tensor.device == "cpu" else super().empty(tensor)

    def _empty(self, tensor: Tensor) -> Any:
        flat = sys.modules[self._module].empty(tensor.count, tensor.dtype.replace("bfloat16", "uint16"))
        if tensor.strides is None or tensor.shape is None:
            return flat.reshape(tensor.shape if tensor.shape is not None else -1)
        tricks = importlib.import_module(f"{self._module}.lib.stride_tricks")
        return tricks.as_strided(flat, tensor.shape, [stride * flat.itemsize for stride in tensor.strides])

    def finished(self, found: Any) -> Any:
        return found.copy("C")

    def fill(self, copy: Any, value: Any, argument: str) -> None:
        copy[...] = sys.modules[self._module].asarray(value)


class _Cupy(_Numpy):
    """Works in memory of CuPy on the device, and gives arrays of NumPy: what files take."""

    _module = "cupy"

    def empty(self, tensor: Tensor) -> Any:
        with _cupy_device(tensor.device):
            return self._empty(tensor)

    def settle(self, device: str) -> None:
        with _cupy_device(device):
            sys.modules["cupy"].cuda.get_current_stream().synchronize()

    def sent(self, value: Any, device: str) -> Any:
        with _cupy_device(device):
            return sys.modules["cupy"].asarray(sys.modules["numpy"].asarray(value))

    def finished(self, found: Any) -> Any:
        return found.get(order="C")


def _cupy_device(device: str) -> Any:
    return sys.modules["cupy"].cuda.Device(int(device.rpartition(":")[2]))


class _Torch(_Plain):
    def number(self, value: int) -> Any:
        return sys.modules["torch"].tensor(value)

    def empty(self, tensor: Tensor) -> Any:
        torch: Any = sys.modules["torch"]
        options = {"dtype": getattr(torch, tensor.dtype), "device": tensor.device}
        shape = tensor.shape if tensor.shape is not None else (tensor.count,)
        if tensor.strides is None:
            return torch.empty(shape, **options)
        return torch.empty_strided(shape, tensor.strides, **options)

    def settle(self, device: str) -> None:
        if device != "cpu":
            sys.modules["torch"].cuda.current_stream(device).synchronize()

    def sent(self, value: Any, device: str) -> Any:
        return sys.modules["torch"].tensor(value, device=device)

    def finished(self, found: Any) -> Any:
        return found.contiguous()

    def fill(self, copy: Any, value: Any, argument: str) -> None:
        copy.copy_(sys.modules["torch"].as_tensor(value))


def _maker(optimizer: Optimizer) -> _Plain:
    if any(tensor.source is not None for tensor in optimizer.params._keep):
        return _Torch()
    if optimizer.context.device != "cpu" and ("cupy" in sys.modules or "torch" in sys.modules):
        return _Cupy() if "cupy" in sys.modules else _Torch()
    return _Numpy() if "numpy" in sys.modules else _Plain()
