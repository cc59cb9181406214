# SPDX-License-Identifier: Apache-2.0
"""Inspects an array of any library, by the protocols that describe its memory.

It accepts an array only if its dtype and byte order, order in memory, mask, device and autograd state are known.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from operator import index as index_of
from typing import Any

from . import torch_memory
from ._native import native
from .device import device_name, parse_device
from .memory import DTYPES, Tensor, count_of, dense_order, dtype_name, with_dtype

_FORMATS = {"e": "float16", "f": "float32", "d": "float64", "i": "int32", "l": "int64", "q": "int64", "B": "uint8",
            "b": "int8", "H": "uint16", "h": "int16", "?": "bool", "I": "uint32", "L": "uint64", "Q": "uint64"}
_TYPESTR = {"f2": "float16", "f4": "float32", "f8": "float64", "i4": "int32", "u2": "uint16", "i2": "int16",
            "V2": "opaque16"}
_DL_KINDS = {0: "int", 1: "uint", 2: "float", 3: "opaque", 4: "bfloat", 5: "complex", 6: "bool"}
# DLPack's device types: CPU, CUDA, pinned host memory, managed memory.
_DL_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}


def is_raw_pointer(value: object) -> bool:
    """Returns whether it is ``(pointer, count, dtype[, device])``."""
    return isinstance(value, tuple) and len(value) in (3, 4) and type(value[0]) is int


def inspect_array(array: Any, argument: str, dtype: str | None, writable: bool, stream: int | None) -> Tensor:
    """The memory of an array. Raises ValueError and TypeError naming `argument` for what is not safe to use."""
    if isinstance(array, Tensor):
        return with_dtype(array, argument, dtype, array.nbytes // array.count if array.count else 1)
    if is_raw_pointer(array):
        return _from_raw(array, argument, dtype)
    if torch_memory.is_torch(array):
        found = torch_memory.inspect_tensor(array, argument, writable)
        return with_dtype(found, argument, dtype, array.element_size())
    _require_known(array, argument, writable)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _from_cuda(array, interface, argument, dtype)
    tensor = _from_buffer(array, argument, dtype)
    if tensor is None and hasattr(array, "__dlpack__"):
        tensor = _from_dlpack(array, argument, dtype, stream)
    if tensor is None:
        raise TypeError(f"{argument} is {type(array).__name__}; it must speak the buffer protocol, __dlpack__ or"
                        f" __cuda_array_interface__, or be (pointer, count, dtype[, device]){conversion_hint(array)}")
    return tensor


def conversion_hint(array: Any) -> str:
    """The end of a message: the thing to pass instead of something that is no array."""
    if hasattr(array, "to_numpy"):
        return "; pass its to_numpy(), if that is no copy"
    return "; numbers belong into an array, such as NumPy's" if isinstance(array, (int, float)) else ""


def _require_known(array: Any, argument: str, writable: bool) -> None:
    """Refuses what the protocols do not say: masks, units and the like of subclasses, graphs, and what is traced."""
    jax: Any = sys.modules.get("jax")
    if jax is not None and isinstance(array, jax.core.Tracer):
        raise TypeError(f"{argument} is traced by JAX and has no memory yet: inside of jit, grad and vmap use the"
                        " functions of gradscaler.jax, or call this on what the compiled function returns")
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray) and type(array) not in (numpy.ndarray, numpy.memmap):
        if isinstance(array, numpy.ma.MaskedArray):
            raise TypeError(f"{argument} is a masked array, whose mask would be ignored; pass its filled(0)")
        raise TypeError(f"{argument} is a {type(array).__name__}, a subclass of numpy.ndarray that is not known here;"
                        " pass numpy.asarray of it if its elements are plain numbers")
    graph = getattr(array, "requires_grad", False) is True or getattr(array, "stop_gradient", True) is False
    if writable and graph:
        raise ValueError(f"{argument} takes part in the autograd of {_library_of(array)}, which would not see it"
                         " written; pass its detach()")


def _library_of(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


def _is_immutable(array: Any) -> bool:
    """Returns whether it is of a library whose arrays are never written; DLPack does not always say so."""
    numpy: Any = sys.modules.get("numpy")
    # What numpy.asarray makes of an array of JAX is a view of it.
    while numpy is not None and type(array) is numpy.ndarray and array.base is not None and not array.flags.writeable:
        array = array.base
    array = array.obj if isinstance(array, memoryview) and array.readonly else array
    return _library_of(array) in ("jax", "jaxlib", "tensorflow", "pyarrow") or isinstance(
        array, (bytes, *([numpy.generic] if numpy is not None else [])))


def _from_raw(array: Any, argument: str, override: str | None) -> Tensor:
    device = device_name(*parse_device(array[3])) if len(array) == 4 else "cpu"
    dtype = override or ("int32" if array[2] == "int32" else dtype_name(array[2], f"{argument}'s dtype"))
    # A negative count that C can hold is the library's to refuse.
    if type(array[1]) is not int or not -(1 << 63) <= array[1] < 1 << 63 or not 0 <= array[0] < 1 << 64:
        raise TypeError(f"{argument} is {array!r}; it must be (pointer, count, dtype[, device])")
    return Tensor(array[0], array[1], dtype, device)


def _from_buffer(array: Any, argument: str, override: str | None) -> Tensor | None:
    dtype = None
    try:
        view = native.buffer_view(array)
    except TypeError:
        return None
    except (ValueError, BufferError):
        # NumPy cannot describe ml_dtypes' bfloat16 in a buffer, but it can show the bits.
        element = getattr(array, "dtype", None)
        name = getattr(element, "name", None)
        if name != "bfloat16" or not hasattr(array, "view"):
            if name not in DTYPES and hasattr(array, "__array_interface__"):
                raise TypeError(f"{argument} has dtype {name}; it must be one of {', '.join(DTYPES)}") from None
            return None
        if not getattr(element, "isnative", True):
            raise TypeError(f"{argument} has its bfloat16 in the other byte order; pass a copy in this machine's"
                            ) from None
        if hasattr(array, "__dlpack_device__") and not hasattr(array, "__array_interface__"):
            return None
        view = native.buffer_view(array.view("uint16"))
        dtype = "bfloat16"
    holder, address, nbytes, itemsize, form, readonly, shape, strides = view
    if itemsize == 0:
        raise TypeError(f"{argument} has elements without size, of format {form!r}")
    # Without strides, as ctypes leaves them, it is in C order.
    strides = _in_elements(argument, strides, itemsize) or None
    dtype = dtype or _FORMATS.get(form.lstrip("@=").removeprefix("<")) or _dtype_word(array, form)
    if dtype == "int64" and itemsize == 4:
        dtype = "int32"
    order = dense_order(argument, shape, strides)
    found = Tensor(address, nbytes // itemsize, dtype, "cpu", bool(readonly), None, holder, shape, order,
                   immutable=bool(readonly) and _is_immutable(array))
    return with_dtype(found, argument, override, itemsize)


def _in_elements(argument: str, strides: Sequence[int], itemsize: int) -> list[int]:
    if any(stride % itemsize for stride in strides):
        raise ValueError(f"{argument} is not contiguous: elements of {itemsize} bytes lie {strides} bytes apart")
    return [stride // itemsize for stride in strides]


def _dtype_word(array: Any, form: str) -> str:
    """The name in messages of a dtype that is not taken: the array's, if it has one."""
    called = str(getattr(array, "dtype", ""))
    return called if called and called not in DTYPES else f"of format {form!r}"


def _from_dlpack(array: Any, argument: str, override: str | None, stream: int | None) -> Tensor:
    view: Any = None
    try:
        kind, index = array.__dlpack_device__()
        device = _DL_DEVICES.get(int(kind))
        if device is not None:
            view = native.dlpack_view(_dlpack_capsule(array, device, stream))
    except Exception as error:  # Producers raise what they like: for sharded, sparse, traced and deleted arrays.
        raise ValueError(f"{argument} cannot be looked into: {error}") from error
    if device is None:
        raise ValueError(f"{argument} is on a device of DLPack type {int(kind)}; it must be on the CPU or on CUDA")
    device = device if device == "cpu" else f"{device}:{index}"
    holder, address, code, bits, lanes, _, _, readonly, shape, strides, has_strides = view
    dtype = f"{_DL_KINDS.get(code, 'unknown')}{bits}" + (f"x{lanes}" if lanes != 1 else "")
    count = count_of(argument, shape)
    order = dense_order(argument, shape, strides if has_strides else None)
    immutable = _is_immutable(array)
    found = Tensor(address, count, dtype, device, bool(readonly) or immutable, None, holder, shape, order,
                   immutable=immutable)
    return with_dtype(found, argument, override, bits * lanes // 8)


def _dlpack_capsule(array: Any, device: str, stream: int | None) -> Any:
    # 1 is the legacy default stream; 0 is not allowed.
    arguments = {"stream": stream or 1} if device == "cuda" else {}
    try:
        return array.__dlpack__(max_version=(1, 0), **arguments)
    except TypeError:
        # From before DLPack 1.0.
        return array.__dlpack__(**arguments)


def _from_cuda(array: Any, interface: Mapping[str, Any], argument: str, override: str | None) -> Tensor:
    try:
        address, readonly = interface["data"]
        address = index_of(address or 0)
        shape = tuple(map(index_of, interface["shape"]))
        strides = interface.get("strides")
        strides = None if strides is None else tuple(map(index_of, strides))
        typestr, stream = interface["typestr"], interface.get("stream")
        itemsize = int(typestr[2:])
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise TypeError(f"{argument} has a __cuda_array_interface__ that is none: {error!r}") from error
    if not 0 <= address < 1 << 64 or itemsize <= 0 or (strides is not None and len(strides) != len(shape)):
        raise TypeError(f"{argument} has a __cuda_array_interface__ that contradicts itself: address {address},"
                        f" typestr {typestr!r}, shape {shape}, strides {strides}")
    if stream == 0:
        raise ValueError(f"{argument} gives stream 0 in its __cuda_array_interface__, which is not allowed")
    if interface.get("mask") is not None:
        raise TypeError(f"{argument} has a mask, which would be ignored; pass an array without")
    if stream is None and _library_of(array) in ("jax", "jaxlib"):
        # JAX has separate streams and does not export them.
        array.block_until_ready()
    # Of two bytes, V2 may be anything; '>' is the other byte order, and '|' is for what has none.
    known = typestr[0] == "<" or (typestr[0] == "|" and typestr[1:] == "V2")
    dtype = _TYPESTR.get(typestr[1:]) if known else None
    if dtype == "opaque16" and str(getattr(array, "dtype", "")).rpartition(".")[2] == "bfloat16":
        dtype = "bfloat16"
    elements = None if strides is None else _in_elements(argument, strides, itemsize)
    count = count_of(argument, shape)
    order = dense_order(argument, shape, elements)
    device = getattr(array, "device", None)
    indices = (getattr(device, "id", None), getattr(device, "index", None), 0)
    index = next(found for found in indices if isinstance(found, int))
    immutable = _is_immutable(array)
    found = Tensor(address, count, dtype or f"of typestr {typestr!r}", f"cuda:{index}", bool(readonly) or immutable,
                   stream, array, shape, order, immutable=immutable)
    return with_dtype(found, argument, override, itemsize)
