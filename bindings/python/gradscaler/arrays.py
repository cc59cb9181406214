# SPDX-License-Identifier: Apache-2.0
"""Makes tensors of the arrays of other libraries, without copying. docs/python.md has the table of what is accepted.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from . import torch_memory, trees
from ._native import native
from .array_protocols import conversion_hint, inspect_array, is_raw_pointer
from .errors import InvalidArgumentError
from .memory import BITS, DTYPES, Tensor, dtype_name, same_order
from .messages import counted

#: Anything that this module accepts.
ArrayLike = Any
#: An array, several, mappings from names to arrays, or pytrees, nested or not.
Arrays = Iterable[ArrayLike] | Mapping[str, ArrayLike]


def is_array(value: object) -> bool:
    """Returns whether `value` is one array, not a collection of arrays."""
    if isinstance(value, Tensor) or is_raw_pointer(value):
        return True
    if isinstance(value, (list, tuple, dict, str)):
        return False
    if hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__"):
        return True
    try:
        memoryview(value).release()  # type: ignore[arg-type]
    except (TypeError, BufferError, ValueError):
        return False
    return True


def is_leaf_array(value: object) -> bool:
    """Returns whether `value` is not to be iterated over: an array, or one of pandas, whose items are copies."""
    return is_array(value) or hasattr(value, "to_numpy")


def as_tensor(array: ArrayLike, *, argument: str = "array", dtype: object = None, writable: bool = True,
              stream: int | None = None, any_order: bool = False) -> Tensor:
    """The tensor of `array`. `argument` is its name in errors. `dtype` is the type whose bits 8- and 16-bit integers
    hold.

    `writable` refuses read-only arrays, and tensors that autograd computed. With `any_order` a dense array in another
    than C order will do too, such as PyTorch's channels_last; :attr:`Tensor.strides` then has its order. `stream` is
    the CUDA stream that the memory will be used on.
    """
    override = dtype_name(dtype, "dtype") if dtype is not None else None
    found = inspect_array(array, argument, override, writable, stream)
    if found.dtype not in DTYPES:
        bits = ("; if these are bits of bfloat16, pass dtype='bfloat16', for an optimizer to a TensorList of them"
                if found.dtype in BITS else "")
        raise TypeError(f"{argument} has dtype {found.dtype}; it must be one of {', '.join(DTYPES)}{bits}")
    if writable and found.readonly:
        raise ValueError(f"{argument} is read-only, but it would be written")
    if found.strides is not None and not any_order:
        raise ValueError(f"{argument} is not contiguous in C order")
    return found


def as_scalar(value: object, *, argument: str, dtype: str, writable: bool) -> Tensor:
    """One number in device memory, of a dtype that may also be ``"int32"``."""
    found = inspect_array(value, argument, None, writable, None)
    if found.dtype != dtype or found.count != 1:
        raise TypeError(f"{argument} holds {found.count} x {found.dtype}; it must be one {dtype}")
    if writable and found.readonly:
        raise ValueError(f"{argument} is read-only, but it would be written")
    return found


def as_number(value: object, argument: str, device: str) -> Tensor:
    """One float32 in memory of `device`. On the CPU `value` may be a number, for which memory is made."""
    if isinstance(value, (int, float)):
        if device != "cpu":
            raise TypeError(f"{argument} is a number, but the arrays are on {device}; pass one float32 in that memory,"
                            f" such as torch.tensor({float(value)!r}, device={device!r}) or"
                            f" cupy.asarray({float(value)!r}, 'float32')")
        word = ctypes.c_float(value)
        return Tensor(ctypes.addressof(word), 1, "float32", owner=word)
    tensor = as_scalar(value, argument=argument, dtype="float32", writable=False)
    common_device([tensor], argument, device)
    return tensor


def leaves_of(arrays: Arrays, argument: str) -> trees.Leaves:
    """The arrays in a collection; TypeError for what is neither array nor collection."""
    leaves = trees.flatten(arrays, argument, is_leaf=is_leaf_array)
    if len(leaves) == 1 and leaves.values[0] is arrays and not is_array(arrays):
        raise TypeError(f"{argument} is {type(arrays).__name__}; it must be an array, several or a mapping"
                        f" from names to arrays{conversion_hint(arrays)}")
    return leaves


def gradients_of(arrays: Arrays, argument: str) -> trees.Leaves:
    """:func:`leaves_of` gradients. If there are parameters of PyTorch, its tensors stand for their ``.grad``; one whose
    ``.grad`` is None is left out."""
    leaves = leaves_of(arrays, argument)
    if not any(map(torch_memory.is_parameter, leaves.values)):
        return leaves
    found = trees.Leaves(argument, named=leaves.named)
    for name, path, value in zip(leaves.names, leaves.paths, leaves.values, strict=True):
        is_owner = torch_memory.is_torch(value) and value.is_leaf
        if is_owner and value.grad is None:
            continue
        found.names.append(name)
        found.paths.append(f"{path}.grad" if is_owner else path)
        found.values.append(value.grad if is_owner else value)
    return found


def as_tensors(leaves: trees.Leaves, *, dtype: object = None, writable: bool = True) -> list[Tensor]:
    return [as_tensor(value, argument=leaves.label(i), dtype=dtype, writable=writable, any_order=True)
            for i, value in enumerate(leaves.values)]


def tensor_array(tensors: Sequence[Tensor], names: Sequence[str | None] | None = None) -> Any:
    array = native.TensorArray(len(tensors))
    for i, tensor in enumerate(tensors):
        array.add(tensor.address, tensor.count, DTYPES[tensor.dtype], names[i] if names else None)
    return array


def native_integers(values: Iterable[int]) -> Any:
    """A list of integers for the library."""
    found = list(values)
    array = native.Numbers(len(found))
    for i, value in enumerate(found):
        array.set(i, int(value))
    return array


def native_items(found: Any) -> list[Any]:
    """The entries of a list of the library."""
    return [found.get(i) for i in range(found.count())]


def common_stream(tensors: Sequence[Tensor], label: Callable[[int], str]) -> int:
    """The CUDA stream that the producers of `tensors` name, 0 if none does; InvalidArgumentError if they name two."""
    named = [i for i, tensor in enumerate(tensors) if tensor.stream is not None]
    for i in named:
        first, own = tensors[named[0]].stream or 0, tensors[i].stream or 0
        # 0 and 1 are both the legacy default stream.
        if max(first, 1) != max(own, 1):
            raise InvalidArgumentError(f"{label(i)} is worked on in stream {own:#x}, but {label(named[0])} in"
                                       f" {first:#x}: two streams are not ordered; pass arrays of one stream")
    return tensors[named[0]].stream or 0 if named else 0


def common_device(tensors: Sequence[Tensor], labels: str | trees.Leaves, expected: str | None = None) -> str:
    """The device of all `tensors`; an error names the first that is elsewhere."""
    device = expected or (tensors[0].device if tensors else "cpu")
    for i, tensor in enumerate(tensors):
        if tensor.device != device:
            label = labels if isinstance(labels, str) else labels.label(i)
            raise ValueError(f"{label} is on {tensor.device}; it must be on {device}")
    return device


def require_alike(leaves: trees.Leaves, tensors: Sequence[Tensor], reference: trees.Leaves,
                  others: Sequence[Tensor]) -> None:
    """InvalidArgumentError unless paired tensors have the same shapes and orders in memory."""
    trees.require_shapes(leaves, [tensor.shape for tensor in tensors], reference, [other.shape for other in others])
    for i, (tensor, other) in enumerate(zip(tensors, others, strict=True)):
        if tensor.count != other.count:
            raise InvalidArgumentError(f"{leaves.label(i)} has {counted(tensor.count, 'element')}, but"
                                       f" {reference.label(i)} has {other.count}")
        if not same_order(tensor, other):
            raise InvalidArgumentError(f"{leaves.label(i)} has its elements in another order than"
                                       f" {reference.label(i)}: strides {tensor.strides}, but {other.strides} (None: C"
                                       " order); pass a copy in that order")
