# SPDX-License-Identifier: Apache-2.0
"""How arrays of other libraries become tensors here, without copying.

Accepted are objects with the buffer protocol (NumPy, JAX on the CPU, array.array, bytearray), ``__dlpack__`` (PyTorch,
JAX, CuPy, ...) or ``__cuda_array_interface__``, a :class:`Tensor`, and raw ``(pointer, count, dtype[, device])``. What
is accepted is held: its memory cannot be freed or resized as long as the :class:`Tensor` lives.

Refused, with an error that names the argument: arrays that are not contiguous in C order, read-only ones where the
library writes (``ValueError``), other dtypes and things that are no arrays (``TypeError``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._native import native
from .device import device_name, parse_device

#: Codes of the element types by name.
DTYPES = {"float16": native.FP16, "bfloat16": native.BF16, "float32": native.FP32, "float64": native.FP64}
DTYPE_NAMES = {code: name for name, code in DTYPES.items()}
_ALIASES = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32",
            "fp64": "float64", "double": "float64"}
_SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4}
_FORMATS = {"e": "float16", "f": "float32", "d": "float64", "i": "int32", "l": "int64", "q": "int64", "B": "uint8",
            "b": "int8", "H": "uint16", "h": "int16", "?": "bool", "I": "uint32", "L": "uint64", "Q": "uint64"}
# V2 is how PyTorch and ml_dtypes write bfloat16.
_TYPESTR = {"f2": "float16", "f4": "float32", "f8": "float64", "i4": "int32", "V2": "bfloat16"}
_DL_KINDS = {0: "int", 1: "uint", 2: "float", 3: "opaque", 4: "bfloat", 5: "complex", 6: "bool"}
# DLPack's device types: CPU, CUDA, pinned host memory, managed memory.
_DL_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}

#: Anything that this module accepts.
ArrayLike = Any
#: Arrays, or a mapping from names to arrays.
Arrays = Iterable[ArrayLike] | Mapping[str, ArrayLike]


@dataclass(frozen=True)
class Tensor:
    """A contiguous buffer: where it is and what is in it. Holds the memory through `owner`."""

    #: Address of the first element.
    address: int
    #: Number of elements.
    count: int
    #: ``"float16"``, ``"bfloat16"``, ``"float32"`` or ``"float64"``.
    dtype: str
    #: ``"cpu"`` or ``"cuda:<n>"``.
    device: str = "cpu"
    readonly: bool = False
    #: CUDA stream on which the producer works, if it said so.
    stream: int | None = None
    #: Keeps the memory alive; None for raw pointers.
    owner: Any = None

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.count * _SIZES[self.dtype]


def dtype_name(dtype: object, argument: str = "dtype") -> str:
    """The name of a dtype given as a string, a NumPy dtype or a framework's, such as ``torch.bfloat16``."""
    name = str(getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype).rpartition(".")[2].lower()
    name = _ALIASES.get(name, name)
    if name not in DTYPES:
        raise TypeError(f"{argument} is {dtype!r}; it must be one of {', '.join(DTYPES)}")
    return name


def is_array(value: object) -> bool:
    """Whether `value` is one array, not a collection of arrays."""
    if isinstance(value, Tensor) or _is_raw(value):
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


def as_tensor(array: ArrayLike, *, argument: str = "array", dtype: object = None, writable: bool = True,
              stream: int | None = None) -> Tensor:
    """Looks into `array`. `argument` is its name in errors; `dtype` overrides the array's, for bfloat16 kept as uint16.

    `writable` refuses read-only arrays. `stream` is the CUDA stream that the memory will be used on.
    """
    override = dtype_name(dtype, "dtype") if dtype is not None else None
    found = _look(array, argument, override, stream)
    if found.dtype not in DTYPES:
        raise TypeError(f"{argument} has dtype {found.dtype}; it must be one of {', '.join(DTYPES)}"
                        " (pass dtype='bfloat16' for bfloat16 kept in 16-bit integers)")
    if writable and found.readonly:
        raise ValueError(f"{argument} is read-only, but it would be written")
    return found


def as_word(value: object, *, argument: str, dtype: str, writable: bool) -> Tensor:
    """One number in device memory, of a dtype that may also be ``"int32"``."""
    found = _look(value, argument, None, None)
    if found.dtype != dtype or found.count != 1:
        raise TypeError(f"{argument} holds {found.count} x {found.dtype}; it must be one {dtype}")
    if writable and found.readonly:
        raise ValueError(f"{argument} is read-only, but it would be written")
    return found


def as_tensors(arrays: Arrays, *, argument: str, names: Sequence[str | None] | None = None, dtype: object = None,
               writable: bool = True, stream: int | None = None) -> tuple[list[Tensor], list[str | None]]:
    """Looks into each of `arrays` (one array is a collection of one); tensors and their names."""
    if is_array(arrays):
        arrays = [arrays]
    found_names: list[str | None]
    if isinstance(arrays, Mapping):
        found_names = [str(name) for name in arrays]
        items = list(arrays.values())
        labels = [f"{argument}[{name!r}]" for name in found_names]
    else:
        try:
            items = list(arrays)
        except TypeError:
            raise TypeError(f"{argument} is {type(arrays).__name__}; it must be an array, several or a mapping"
                            " from names to arrays") from None
        found_names = [None] * len(items)
        labels = [f"{argument}[{i}]" for i in range(len(items))]
    if names is not None:
        found_names = list(names)
        if len(found_names) != len(items):
            raise ValueError(f"names has {len(found_names)} entries, but {argument} has {len(items)}")
    tensors = [as_tensor(item, argument=label, dtype=dtype, writable=writable, stream=stream)
               for item, label in zip(items, labels, strict=True)]
    return tensors, found_names


def tensor_array(tensors: Sequence[Tensor], names: Sequence[str | None] | None = None) -> Any:
    """The native array of `tensors`."""
    array = native.TensorArray(len(tensors))
    for i, tensor in enumerate(tensors):
        array.add(tensor.address, tensor.count, DTYPES[tensor.dtype], names[i] if names else None)
    return array


def common_device(tensors: Sequence[Tensor], argument: str, expected: str | None = None) -> str:
    """The device of all `tensors`; an error names the first that is elsewhere."""
    device = expected or (tensors[0].device if tensors else "cpu")
    for i, tensor in enumerate(tensors):
        if tensor.device != device:
            raise ValueError(f"{argument}[{i}] is on {tensor.device}; it must be on {device}")
    return device


def _is_raw(value: object) -> bool:
    return isinstance(value, tuple) and len(value) in (3, 4) and type(value[0]) is int


def _look(array: Any, argument: str, override: str | None, stream: int | None) -> Tensor:
    if isinstance(array, Tensor):
        return _with_dtype(array, argument, override, array.nbytes)
    if _is_raw(array):
        return _from_raw(array, argument, override)
    if getattr(array, "requires_grad", False) and hasattr(array, "detach"):
        array = array.detach()
    if _is_torch(array):
        _check_tensor(array, argument)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _from_cuda(array, interface, argument, override)
    found = _from_buffer(array, argument, override)
    if found is None and hasattr(array, "__dlpack__"):
        found = _from_dlpack(array, argument, override, stream)
    if found is None:
        raise TypeError(f"{argument} is {type(array).__name__}; it must speak the buffer protocol, __dlpack__ or"
                        " __cuda_array_interface__, or be (pointer, count, dtype[, device])")
    return found


def _with_dtype(found: Tensor, argument: str, override: str | None, nbytes: int) -> Tensor:
    if override is None or override == found.dtype:
        return found
    return Tensor(found.address, _count(argument, nbytes, override), override, found.device, found.readonly,
                  found.stream, found.owner)


def _count(argument: str, nbytes: int, dtype: str) -> int:
    if nbytes % _SIZES[dtype]:
        raise ValueError(f"{argument} has {nbytes} bytes, which is no multiple of the size of {dtype}")
    return nbytes // _SIZES[dtype]


def _require_contiguous(argument: str, contiguous: bool) -> None:
    if not contiguous:
        raise ValueError(f"{argument} is not contiguous in C order")


def _from_raw(array: Any, argument: str, override: str | None) -> Tensor:
    device = device_name(*parse_device(array[3])) if len(array) == 4 else "cpu"
    dtype = override or ("int32" if array[2] == "int32" else dtype_name(array[2], f"{argument}'s dtype"))
    if type(array[1]) is not int or array[0] < 0:
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
        if getattr(getattr(array, "dtype", None), "name", None) != "bfloat16" or not hasattr(array, "view"):
            return None
        if hasattr(array, "__dlpack_device__") and not hasattr(array, "__array_interface__"):
            return None
        _require_contiguous(argument, bool(array.flags.c_contiguous))
        view = native.buffer_view(array.view("uint16"))
        dtype = "bfloat16"
    holder, address, nbytes, itemsize, form, readonly, contiguous = view
    _require_contiguous(argument, bool(contiguous))
    plain = form.lstrip("@=")
    if plain.startswith("<"):
        plain = plain[1:]
    dtype = dtype or _FORMATS.get(plain, f"of format {form!r}")
    if dtype == "int64" and itemsize == 4:
        dtype = "int32"
    found = Tensor(address, nbytes // itemsize if itemsize else 0, dtype, "cpu", bool(readonly), None, holder)
    return _with_dtype(found, argument, override, nbytes)


def _from_dlpack(array: Any, argument: str, override: str | None, stream: int | None) -> Tensor:
    try:
        kind, index = array.__dlpack_device__()
        device = _DL_DEVICES.get(int(kind))
        if device is not None:
            capsule = _dlpack_capsule(array, device, stream)
    except Exception as error:  # Producers raise what they like: for meta, sparse, traced and deleted arrays.
        raise ValueError(f"{argument} cannot be looked into: {error}") from error
    if device is None:
        raise ValueError(f"{argument} is on a device of DLPack type {int(kind)}; it must be on the CPU or on CUDA")
    device = device if device == "cpu" else f"{device}:{index}"
    holder, address, count, code, bits, lanes, _, _, readonly, contiguous = native.dlpack_view(capsule)
    _require_contiguous(argument, bool(contiguous))
    dtype = f"{_DL_KINDS.get(code, 'unknown')}{bits}" + (f"x{lanes}" if lanes != 1 else "")
    if dtype == "bfloat16" and code != 4:
        dtype = "opaque16"
    found = Tensor(address, count, dtype, device, bool(readonly) or _is_jax(array), None, holder)
    return _with_dtype(found, argument, override, count * (bits * lanes // 8))


def _dlpack_capsule(array: Any, device: str, stream: int | None) -> Any:
    # 1 is the legacy default stream; 0 is not allowed.
    arguments = {"stream": stream or 1} if device == "cuda" else {}
    try:
        return array.__dlpack__(max_version=(1, 0), **arguments)
    except TypeError:
        # From before DLPack 1.0.
        return array.__dlpack__(**arguments)


def _is_jax(array: Any) -> bool:
    """Whether it is an array of JAX: those are immutable, but not all versions say so."""
    return type(array).__module__.partition(".")[0] in ("jax", "jaxlib")


def _is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _check_tensor(array: Any, argument: str) -> None:
    """Refuses tensors of PyTorch whose memory is not what they show, of which their interfaces say nothing."""
    if array.is_neg():
        raise ValueError(f"{argument} is a view that negates its memory; pass its resolve_neg()")
    try:
        held = array.untyped_storage().nbytes()
        needed = (array.storage_offset() + array.numel()) * array.element_size()
    except (RuntimeError, NotImplementedError):
        return  # Sparse and the like, which are refused for what they are.
    if array.is_contiguous() and array.numel() and held < needed:
        raise ValueError(f"{argument} was freed or resized: its storage has {held} bytes, but it needs {needed}")


def _producer_stream(array: Any) -> int | None:
    """The CUDA stream that fills `array`, for libraries whose interface does not say."""
    if _is_torch(array):
        torch: Any = sys.modules["torch"]
        return int(torch.cuda.current_stream(array.device).cuda_stream)
    if _is_jax(array):
        # It has streams of its own, and tells nobody.
        array.block_until_ready()
    return None


def _from_cuda(array: Any, interface: Mapping[str, Any], argument: str, override: str | None) -> Tensor:
    address, readonly = interface["data"]
    shape, strides, typestr = interface["shape"], interface.get("strides"), interface["typestr"]
    stream = interface.get("stream")
    if stream == 0:
        raise ValueError(f"{argument} gives stream 0 in its __cuda_array_interface__, which is not allowed")
    if stream is None:
        stream = _producer_stream(array)
    itemsize = int(typestr[2:])
    count = 1
    for extent in shape:
        count *= extent
    if strides is not None and count:
        expected = itemsize
        for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
            _require_contiguous(argument, extent == 1 or stride == expected)
            expected *= extent
    dtype = _TYPESTR.get(typestr[1:], f"of typestr {typestr!r}")
    device = getattr(array, "device", None)
    index = getattr(device, "id", None)
    index = index if isinstance(index, int) else getattr(device, "index", None)
    found = Tensor(address or 0, count, dtype, f"cuda:{index if isinstance(index, int) else 0}",
                   bool(readonly) or _is_jax(array), stream, array)
    return _with_dtype(found, argument, override, count * itemsize)
