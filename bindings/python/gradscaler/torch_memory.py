# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors as memory: what can be used, whether it is still what it was, and telling autograd of writes.

Imports no torch: what is passed brings it. Only plain tensors and parameters are known; what subclasses do with their
memory (DTensor, FakeTensor, quantized and nested ones) is theirs to know.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterable
from typing import Any

from .memory import Tensor, dense_order


def is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def is_plain(array: Any) -> bool:
    return is_plain_class(type(array))


def is_plain_class(kind: Any) -> bool:
    """Returns whether it is one of PyTorch's two, or a subclass of Parameter that leaves all operations to PyTorch."""
    torch: Any = sys.modules["torch"]
    return kind is torch.Tensor or kind is torch.nn.Parameter or issubclass(kind, torch.nn.Parameter) and (
        kind.__torch_function__ is torch.nn.Parameter.__torch_function__) and (
        kind.__torch_dispatch__ is torch.nn.Parameter.__torch_dispatch__)


def require_plain(array: Any, argument: str, instead: str = "") -> None:
    """TypeError and ValueError for a tensor that is not plain. `instead` is what else may be passed."""
    if is_plain(array):
        return
    if sys.modules["torch"].nn.parameter.is_lazy(array):
        raise ValueError(f"{argument} is a lazy parameter, which has no memory yet; run a forward pass first")
    raise TypeError(f"{argument} is a {type(array).__name__}, a subclass of torch.Tensor whose memory is not known"
                    f" here; {instead}use torch.optim with gradscaler.torch.GradScaler")


def is_parameter(array: Any) -> bool:
    """Returns whether PyTorch trains the tensor, or did before it was frozen: a parameter, or a leaf."""
    torch: Any = sys.modules.get("torch")
    return is_torch(array) and (isinstance(array, torch.nn.Parameter) or (array.requires_grad and array.is_leaf))


def inspect_tensor(array: Any, argument: str, writable: bool) -> Tensor:
    """The memory of a tensor. Raises ValueError and TypeError naming `argument` for what is not safe to use."""
    torch: Any = sys.modules["torch"]
    local = "its to_local()" if hasattr(array, "to_local") else "a plain tensor of its memory"
    require_plain(array, argument, f"pass {local}, or ")
    if array.layout is not torch.strided or array.is_nested:
        kind = "nested" if array.is_nested else f"of layout {str(array.layout).rpartition('.')[2]}"
        raise ValueError(f"{argument} is {kind}; it must be dense")
    if array.device.type not in ("cpu", "cuda") or (array.device.type == "cuda" and torch.version.hip is not None):
        raise ValueError(f"{argument} is on {array.device}; it must be on the CPU or on CUDA")
    if array.is_neg():
        raise ValueError(f"{argument} is a view that negates its memory; pass its resolve_neg()")
    if writable and array.requires_grad and not array.is_leaf:
        raise ValueError(f"{argument} is a result of autograd; writing it in place would be hidden from its graph: pass"
                         " its detach()")
    try:
        address = int(array.data_ptr())
        array.untyped_storage()
    except (RuntimeError, NotImplementedError) as error:  # Wrapped by torch.func, fake, functional.
        raise ValueError(f"{argument} cannot be looked into: {str(error).splitlines()[0]}") from error
    shape = tuple(array.shape)
    strides = dense_order(argument, shape, array.stride())
    require_storage(array, argument)
    if not address and array.numel():
        raise ValueError(f"{argument} cannot be looked into: it is traced by PyTorch and has no memory yet")
    cuda = array.device.type == "cuda"
    return Tensor(address, array.numel(), str(array.dtype).rpartition(".")[2],
                  f"cuda:{array.device.index}" if cuda else "cpu", False,
                  int(torch.cuda.current_stream(array.device).cuda_stream) if cuda else None,
                  # Shares memory and version counter, but not .grad, and does not keep the tensor itself alive.
                  array.detach(), shape, strides, weakref.ref(array))


def require_storage(array: Any, argument: str) -> None:
    """ValueError for a plain dense tensor whose storage was freed, which PyTorch itself reads without looking."""
    if array.numel() and array.is_contiguous() and not has_storage(array):
        raise ValueError(f"{argument} was freed or resized: its storage has {array.untyped_storage().nbytes()} bytes,"
                         f" but it needs {_needed(array)}")


def has_storage(tensor: Any) -> bool:
    return bool(tensor.untyped_storage().nbytes() >= _needed(tensor))


def _needed(tensor: Any) -> int:
    return int((tensor.storage_offset() + tensor.numel()) * tensor.element_size())


def replaced_source(tensor: Tensor) -> Any | None:
    """The tensor that `tensor` was made of if its memory is another now (``p.data = ...``, resized), else None."""
    source = tensor.source() if tensor.source is not None else None
    if source is None or (source.data_ptr() == tensor.address and source.numel() == tensor.count):
        return None
    return source


def is_unreferenced(tensor: Tensor) -> bool:
    """Returns whether only this library still holds the memory, so that it cannot be written again.

    ``zero_grad()`` does this to gradients: backward then fills new ones, and the old ones never change.
    """
    if tensor.source is None or tensor.source() is not None or not tensor.count:
        return False
    # The tensor's own object may have been a temporary, as of p.grad.data; memory from elsewhere, as of from_numpy,
    # is its owner's to write.
    is_resizable = bool(tensor.owner.untyped_storage().resizable())
    return is_resizable and _storage_references(tensor.owner) <= _references_of_new_storage()


def _storage_references(tensor: Any) -> int:
    return int(sys.modules["torch"]._C._storage_Use_Count(tensor.untyped_storage()._cdata))


@functools.cache
def _references_of_new_storage() -> int:
    return _storage_references(sys.modules["torch"].empty(1))


def mark_written(tensors: Iterable[Tensor]) -> None:
    """Bumps the version counters of tensors that were written in place, so that autograd sees it."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return
    written: list[Any] = [tensor.owner for tensor in tensors if isinstance(tensor.owner, torch.Tensor)]
    if written:
        torch.autograd.graph.increment_version(written)

