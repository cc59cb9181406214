# SPDX-License-Identifier: Apache-2.0
"""The description of an array for the library: address, dtype, shape, order and device, and who holds the memory.

:mod:`.array_protocols` and :mod:`.torch_memory` make it of arrays of other libraries; :mod:`.arrays` has what users
call.
"""

from __future__ import annotations

import array
import bisect
import itertools
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ._native import native

#: Codes of the element types by name.
DTYPES = {"float16": native.FP16, "bfloat16": native.BF16, "float32": native.FP32, "float64": native.FP64}
DTYPE_NAMES = {code: name for name, code in DTYPES.items()}
#: Bytes of an element.
SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4, "uint16": 2, "int16": 2,
         "uint8": 1, "int8": 1}
_TYPESTR = {"float16": "<f2", "float32": "<f4", "float64": "<f8", "int32": "<i4", "uint16": "<u2", "int16": "<i2",
            "uint8": "|u1", "int8": "|i1"}
_ALIASES = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32",
            "fp64": "float64", "double": "float64"}
#: Elements that may stand for bits of another dtype.
BITS = ("uint16", "int16", "opaque16", "uint8", "int8")


@dataclass(frozen=True)
class Tensor:
    """A dense buffer: where it is and what is in it. Holds the memory through `owner`."""

    #: Address of the first element.
    address: int
    #: Number of elements.
    count: int
    #: ``"float16"``, ``"bfloat16"``, ``"float32"`` or ``"float64"``; of state in codes an integer of their size.
    dtype: str
    #: ``"cpu"`` or ``"cuda:<n>"``.
    device: str = "cpu"
    readonly: bool = False
    #: CUDA stream on which the producer works, if it said so.
    stream: int | None = None
    #: Keeps the memory alive; None for raw pointers.
    owner: Any = field(default=None, compare=False, repr=False)
    #: Extents; None if unknown, as for raw pointers.
    shape: tuple[int, ...] | None = None
    #: Strides in elements of a dense array in another than C order, such as PyTorch's channels_last; else None.
    strides: tuple[int, ...] | None = None
    #: A weak reference to the PyTorch tensor that this was made of.
    source: Any = field(default=None, compare=False, repr=False)
    #: Of a library whose arrays are never written: new values are another array.
    immutable: bool = False

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.count * SIZES[self.dtype]

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """For ``numpy.asarray``, which then holds the memory. TypeError for what NumPy has not."""
        if self.device != "cpu":
            raise TypeError(f"the tensor is on {self.device}, where NumPy does not reach")
        return self._interface()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For ``cupy.asarray`` and ``torch.as_tensor``. On a CUDA device only."""
        if self.device == "cpu":
            raise AttributeError("the tensor is on the CPU")
        # 0 is not allowed; 1 is the same stream.
        return {**self._interface(), "stream": None if self.stream is None else self.stream or 1}

    def _interface(self) -> dict[str, Any]:
        if self.dtype not in _TYPESTR:
            raise TypeError(f"the tensor has dtype {self.dtype}, which NumPy does not have; dataclasses.replace(tensor,"
                            " dtype='uint16') has the bits")
        size = SIZES[self.dtype]
        return {"shape": (self.count,) if self.shape is None else self.shape, "typestr": _TYPESTR[self.dtype],
                "data": (self.address, self.readonly), "version": 3,
                "strides": None if self.strides is None else tuple(stride * size for stride in self.strides)}


def dtype_name(dtype: object, argument: str = "dtype") -> str:
    """The name of a dtype given as a string, a NumPy dtype or a framework's, such as ``torch.bfloat16``."""
    name = str(getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype).rpartition(".")[2].lower()
    name = _ALIASES.get(name, name)
    if name not in DTYPES or str(getattr(dtype, "byteorder", "="))[:1] == ">":
        raise TypeError(f"{argument} is {dtype!r}; it must be one of {', '.join(DTYPES)}")
    return name


def dense_order(argument: str, shape: Sequence[int], strides: Sequence[int] | None) -> tuple[int, ...] | None:
    """`strides` (in elements) if they are those of a dense array in another than C order, None for C order.

    ValueError for anything else: gaps, repeated and reversed elements.
    """
    if strides is None or is_c_order(shape, strides):
        return None
    expected = 1
    for stride, extent in sorted(pair for pair in zip(strides, shape, strict=True) if pair[1] != 1):
        if stride != expected:
            raise ValueError(f"{argument} is not contiguous: its strides are {tuple(strides)} elements for the shape"
                             f" {tuple(shape)}; pass a contiguous copy")
        expected *= extent
    return tuple(strides)


def is_c_order(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return 0 in shape
        expected *= extent
    return True


def same_order(a: Tensor, b: Tensor) -> bool:
    """Returns whether elements of two tensors of one shape that belong together stand at the same place in memory."""
    if a.strides is None and b.strides is None:
        return True
    if a.shape is None or b.shape is None or a.strides is None or b.strides is None:
        return a.count <= 1
    return all(s == t for s, t, extent in zip(a.strides, b.strides, a.shape, strict=True) if extent != 1)


def unreferenced(tensors: list[Tensor]) -> list[int]:
    """The tensors whose memory only `tensors` holds, so that no caller can write it again.

    Known of arrays that own their memory: NumPy's, also through views of them, ``array.array`` and ``bytearray``.
    """
    numpy: Any = sys.modules.get("numpy")
    found = native.buffer_holders(tensors, numpy.ndarray if numpy is not None else None, (array.array, bytearray))
    if not found:
        return []
    own = Counter(root for _, root, _ in found)
    return [index for index, root, references in found if references == own[root] and tensors[index].count]


def require_no_overlap(written: Sequence[Tensor], written_label: Callable[[int], str], read: Sequence[Tensor] = (),
                  read_label: Callable[[int], str] = str) -> None:
    """ValueError if memory is written twice, or read where another tensor than its own target is written.

    `read`, if given, has the source of each tensor of `written`; it may be the target itself.
    """
    spans = sorted((tensor.address, tensor.address + tensor.nbytes, i) for i, tensor in enumerate(written)
                   if tensor.count)
    for (_, end, i), (begin, _, j) in itertools.pairwise(spans):
        if begin < end:
            raise ValueError(f"{written_label(max(i, j))} overlaps {written_label(min(i, j))} in memory; pass a copy")
    for i, tensor in enumerate(read):
        # The last that begins before the end is the only one that can reach into it.
        last = bisect.bisect_left(spans, (tensor.address + tensor.nbytes, 0, 0)) - 1
        if not tensor.count or last < 0 or spans[last][1] <= tensor.address:
            continue
        if spans[last] != (tensor.address, tensor.address + tensor.nbytes, i):
            raise ValueError(f"{read_label(i)} overlaps {written_label(spans[last][2])} in memory; pass a copy")


def with_dtype(found: Tensor, argument: str, dtype: str | None, itemsize: int) -> Tensor:
    """`found` with its bits taken for `dtype`, if that is given. Other floating dtypes are not reinterpreted."""
    if dtype is None or dtype == found.dtype:
        return found
    if found.dtype not in BITS:
        raise TypeError(f"{argument} has dtype {found.dtype}, but dtype is {dtype!r}; only integers of 8 or 16 bits"
                        " are taken for the bits of another dtype")
    if found.strides is not None and itemsize != SIZES[dtype]:
        raise ValueError(f"{argument} is not contiguous in C order, so its bytes cannot be taken for {dtype}")
    nbytes = found.count * itemsize
    if nbytes % SIZES[dtype]:
        raise ValueError(f"{argument} has {nbytes} bytes, which is no multiple of the size of {dtype}")
    shape = found.shape if itemsize == SIZES[dtype] else None
    return replace(found, count=nbytes // SIZES[dtype], dtype=dtype, shape=shape)


def count_of(argument: str, shape: Sequence[int]) -> int:
    """Elements of a shape; ValueError if there can be no such array."""
    count = math.prod(shape)
    if any(extent < 0 for extent in shape) or count >= 1 << 63:
        raise ValueError(f"{argument} has the shape {tuple(shape)}, which no array can have")
    return count
