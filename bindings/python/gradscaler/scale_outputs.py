# SPDX-License-Identifier: Apache-2.0
"""``GradScaler.scale``: losses times the scale, by the operation of the library that has to know of it.

A factor that autograd or a tracer does not see is missing from the gradients, and ``step`` divides by it all the same.
"""

from __future__ import annotations

import array as _array
import copy
import numbers
import sys
from collections.abc import Callable
from typing import Any

from . import torch_memory
from .memory import Tensor

_REMEDY = "multiply it by get_scale() with its own operation, or pass out= for plain memory"


def scale_outputs(outputs: Any, scale: float, in_place: Callable[[Any], Any], argument: str = "outputs") -> Any:
    """`outputs`, and what is in lists, tuples, mappings and other iterables, times `scale`.

    `in_place` multiplies a fresh array of plain memory. Raises TypeError for what is no number or known array, and
    ValueError for tracers in whose compiled function the scale would stay what it is now.
    """
    if isinstance(outputs, numbers.Real) and not isinstance(outputs, _numpy_type("float16")):
        # Integers do not hold the product; other kinds of numbers stay what they are, with all their digits.
        kind: Any = float if isinstance(outputs, (numbers.Integral, float)) else type(outputs)
        return kind(outputs) * kind(scale)
    if _is_of(outputs, "torch", "Tensor"):
        return _scale_tensor(outputs, scale, argument)
    if _is_of(outputs, "jax", "Array"):
        return _scale_jax_array(outputs, scale, argument)
    array: Any = outputs
    is_numpy = type(outputs) in (_numpy_type("ndarray"), _numpy_type("memmap"))
    if isinstance(outputs, _numpy_type("float16")) or (
            (is_numpy or is_cupy(outputs)) and array.ndim == 0 and array.dtype.name in ("float16", "bfloat16")):
        # As PyTorch's tensors without dimensions: 16 bits do not hold the scale.
        return in_place(array.astype("float32")) if is_cupy(outputs) else sys.modules["numpy"].float32(
            float(array) * scale)
    if is_numpy or is_cupy(outputs):
        return in_place(array.copy())
    if isinstance(outputs, _array.array):
        return in_place(copy.copy(outputs))
    if isinstance(outputs, tuple) and hasattr(outputs, "_fields"):
        return type(outputs)(*(scale_outputs(getattr(outputs, name), scale, in_place, f"{argument}.{name}")
                               for name in outputs._fields))  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(outputs, (list, tuple)):
        return type(outputs)(scale_outputs(item, scale, in_place, f"{argument}[{i}]") for i, item in enumerate(outputs))
    if isinstance(outputs, dict):
        return {key: scale_outputs(item, scale, in_place, f"{argument}[{key!r}]") for key, item in outputs.items()}
    if type(outputs).__module__ in ("builtins", "itertools") and hasattr(outputs, "__next__"):
        return (scale_outputs(item, scale, in_place, f"{argument}[{i}]")
                for i, item in enumerate(outputs))  # pyright: ignore[reportArgumentType]
    if isinstance(outputs, _numpy_type("ndarray")):
        raise TypeError(f"{argument} is a {type(outputs).__name__}, a subclass of numpy.ndarray that is not known here;"
                        f" {_REMEDY}")
    if hasattr(outputs, "__array__") or hasattr(outputs, "__dlpack__") or isinstance(outputs, Tensor):
        raise TypeError(f"{argument} is a {type(outputs).__name__}, and whether its library follows it is not known"
                        f" here; {_REMEDY}")
    raise TypeError(f"{argument} is {type(outputs).__name__}; it must be a number, an array, or several")


def require_no_grad(outputs: Any) -> None:
    """ValueError for what autograd follows: a copy in plain memory would not be followed."""
    if getattr(outputs, "requires_grad", False) is True:
        raise ValueError("outputs requires gradients, which out would not have; call scale() without out")


def _scale_tensor(outputs: Any, scale: float, argument: str) -> Any:
    torch: Any = sys.modules["torch"]
    proxy: Any = sys.modules.get("torch.fx.experimental.proxy_tensor")
    if torch.jit.is_tracing() or (proxy is not None and proxy.get_proxy_mode() is not None):
        raise ValueError(f"{argument} is traced by PyTorch, and the scale would be a constant of the trace; scale what"
                         " the traced function returns")
    if torch_memory.is_plain(outputs) and outputs.layout is torch.strided and outputs.device.type == "cpu" and (
            not torch.compiler.is_compiling() and not torch._C._functorch.is_functorch_wrapped_tensor(outputs)):
        torch_memory.require_storage(outputs, argument)
    # As torch.amp.GradScaler: a tensor without dimensions and with 16 bits comes back with 32.
    return outputs * torch.full((), scale, dtype=torch.float32, device=outputs.device)


def _scale_jax_array(outputs: Any, scale: float, argument: str) -> Any:
    jax: Any = sys.modules["jax"]
    value = outputs
    while isinstance(value, jax.core.Tracer):
        # Under jax.grad alone there is a value, and the function runs again for each.
        value = getattr(value, "primal", None)
    if value is None:
        raise ValueError(f"{argument} is traced by JAX (jit, vmap, scan), and the scale would be a constant of the"
                         " compiled function; pass get_scale() to it as an argument, or use gradscaler.jax")
    if value.is_deleted():
        raise ValueError(f"{argument} was deleted or donated to a compiled function")
    numpy: Any = sys.modules["jax.numpy"]
    if jax.dtypes.issubdtype(outputs.dtype, jax.dtypes.extended):
        raise TypeError(f"{argument} has dtype {outputs.dtype}, which is no number")
    if not numpy.issubdtype(outputs.dtype, numpy.inexact):
        # As PyTorch's: integers do not hold the product.
        return outputs * numpy.float32(scale)
    if outputs.dtype.itemsize > 2:
        return outputs * outputs.dtype.type(scale)
    # 16 bits do not hold the scale.
    product = outputs.astype("float32") * scale
    return product.astype(outputs.dtype) if outputs.ndim else product


def _is_of(value: Any, library: str, kind: str) -> bool:
    # Half imported modules have nothing yet. Nothing is of ().
    return isinstance(value, getattr(sys.modules.get(library), kind, ()))


def _numpy_type(name: str) -> Any:
    """A type of NumPy; where NumPy was not imported, one that nothing is of."""
    return getattr(sys.modules.get("numpy"), name, ())


def is_cupy(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "cupy" and type(value).__name__ == "ndarray"
