# SPDX-License-Identifier: Apache-2.0
"""Factories of the arrays that a checkpoint consists of: of the standard library, NumPy, CuPy or PyTorch."""

from __future__ import annotations

import array
import importlib
import sys
from typing import Any

from .memory import Tensor
from .tensors import TensorList


def other_order(argument: str) -> ValueError:
    return ValueError(f"{argument} has its elements in another order than the parameter; pass a copy in that order")


def _out_of_reach(device: str) -> ValueError:
    return ValueError(f"the state is on {device}; import cupy or torch first, which copies it")


class StandardArrays:
    """Makes what the standard library has: flat arrays and integers."""

    def number(self, value: int) -> Any:
        return value

    def empty(self, tensor: Tensor) -> Any:
        """Memory of the dtype, order and device of a state tensor."""
        if tensor.device != "cpu":
            raise _out_of_reach(tensor.device)
        if tensor.strides is not None:
            raise ValueError("the state is not in C order; import numpy or torch first, which copies it")
        typecodes = {"float64": "d", "float32": "f", "bfloat16": "H", "int16": "h", "int8": "b"}
        return array.array(typecodes.get(tensor.dtype, "B"), bytes(tensor.nbytes))

    def synchronize(self, device: str) -> None:
        """Waits until nothing that the library of the arrays has enqueued uses the memory of :meth:`empty` any more."""

    def on_device(self, value: Any, device: str) -> Any:
        raise _out_of_reach(device)

    def contiguous(self, found: Any) -> Any:
        """The same, contiguous."""
        return found

    def fill(self, copy: Any, value: Any, argument: str) -> None:
        raise other_order(argument)


class NumpyArrays(StandardArrays):
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

    def contiguous(self, found: Any) -> Any:
        return found.copy("C")

    def fill(self, copy: Any, value: Any, argument: str) -> None:
        copy[...] = sys.modules[self._module].asarray(value)


class CupyArrays(NumpyArrays):
    """Works in memory of CuPy on the device, and gives arrays of NumPy: what files take."""

    _module = "cupy"

    def empty(self, tensor: Tensor) -> Any:
        with _cupy_device(tensor.device):
            return self._empty(tensor)

    def synchronize(self, device: str) -> None:
        with _cupy_device(device):
            sys.modules["cupy"].cuda.get_current_stream().synchronize()

    def on_device(self, value: Any, device: str) -> Any:
        with _cupy_device(device):
            return sys.modules["cupy"].asarray(sys.modules["numpy"].asarray(value))

    def contiguous(self, found: Any) -> Any:
        return found.get(order="C")


def _cupy_device(device: str) -> Any:
    return sys.modules["cupy"].cuda.Device(int(device.rpartition(":")[2]))


class TorchTensors(StandardArrays):
    def number(self, value: int) -> Any:
        return sys.modules["torch"].tensor(value)

    def empty(self, tensor: Tensor) -> Any:
        torch: Any = sys.modules["torch"]
        options = {"dtype": getattr(torch, tensor.dtype), "device": tensor.device}
        shape = tensor.shape if tensor.shape is not None else (tensor.count,)
        if tensor.strides is None:
            return torch.empty(shape, **options)
        return torch.empty_strided(shape, tensor.strides, **options)

    def synchronize(self, device: str) -> None:
        if device != "cpu":
            sys.modules["torch"].cuda.current_stream(device).synchronize()

    def on_device(self, value: Any, device: str) -> Any:
        return sys.modules["torch"].tensor(value, device=device)

    def contiguous(self, found: Any) -> Any:
        return found.contiguous()

    def fill(self, copy: Any, value: Any, argument: str) -> None:
        copy.copy_(sys.modules["torch"].as_tensor(value))


def factory_of(params: TensorList, device: str) -> StandardArrays:
    """The factory of the arrays that a checkpoint of these parameters has."""
    if any(tensor.source is not None for tensor in params._tensors):
        return TorchTensors()
    if device != "cpu" and ("cupy" in sys.modules or "torch" in sys.modules):
        return CupyArrays() if "cupy" in sys.modules else TorchTensors()
    return NumpyArrays() if "numpy" in sys.modules else StandardArrays()
