# SPDX-License-Identifier: Apache-2.0
"""Stateless operations, for programs that keep the scaler's state in their own arrays; and clipping of plain arrays.

A device scalar such as `found_inf` is an array of one element on the tensors' device. On the CPU, one that is only read
may be a number. Tensors are an array, several, or a mapping from names to arrays: float16, bfloat16, float32 or float64
in any dense order. On CUDA, work goes to the stream that the arrays name. ValueError and TypeError name an array that
cannot be used, memory that is written twice or read after it was written, and pairs that do not fit; nothing changes
then.
"""

from __future__ import annotations

import ctypes
import math
from contextlib import AbstractContextManager
from typing import Any

from . import trees
from ._native import integer, real
from .arrays import (
    Arrays,
    as_number,
    as_scalar,
    as_tensors,
    common_device,
    common_stream,
    gradients_of,
    leaves_of,
    tensor_array,
)
from .device import default_context
from .memory import Tensor, require_no_overlap, same_order
from .messages import named_errors
from .scaler import GradScaler, norm_code
from .tensors import TensorList
from .torch_memory import mark_written

__all__ = ["unscale_check", "update_scale", "scale", "axpby", "cast", "norm", "norms"]

Number = float | Any


def unscale_check(tensors: Arrays, found_inf: Any, inv_scale: Number) -> None:
    """Multiplies `tensors` by `inv_scale` in place, and sets `found_inf` (float32) to 1 if an element is inf or NaN.

    Both before and after the multiplication count. Without one `found_inf` stays as it is. As PyTorch's
    ``_amp_foreach_non_finite_check_and_unscale_``.
    """
    leaves = leaves_of(tensors, "tensors")
    found = _as_tensors(leaves)
    word = as_scalar(found_inf, argument="found_inf", dtype="float32", writable=True)
    device = common_device(found, leaves, word.device)
    factor = as_number(inv_scale, "inv_scale", device)
    stream = common_stream(found, leaves.label)
    with named_errors(tensors=leaves):
        default_context(device)._handle.unscale_check(tensor_array(found), word.address, factor.address, stream)
    mark_written([*found, word])


def update_scale(scale: Any, growth_tracker: Any, found_inf: Number, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000) -> None:
    """Updates `scale` (float32) and `growth_tracker` (int32) in place. PyTorch's ``_amp_update_scale_``.

    If `found_inf` is not 0 the scale is multiplied by `backoff_factor` (in (0, 1)) and the tracker is 0; else the
    tracker counts, and at `growth_interval` (>= 1) the scale is multiplied by `growth_factor` (> 1), unless that
    overflows.
    """
    word = as_scalar(scale, argument="scale", dtype="float32", writable=True)
    tracker = as_scalar(growth_tracker, argument="growth_tracker", dtype="int32", writable=True)
    common_device([tracker], "growth_tracker", word.device)
    found = as_number(found_inf, "found_inf", word.device)
    default_context(word.device)._handle.update_scale(
        word.address, tracker.address, found.address, real("growth_factor", growth_factor),
        real("backoff_factor", backoff_factor), integer("growth_interval", growth_interval, -(1 << 31), (1 << 31) - 1),
        word.stream or 0)
    mark_written([word, tracker])


def scale(src: Arrays, dst: Arrays, factor: Number) -> None:
    """``dst[i] = src[i] * factor``, paired by name; dtypes may differ, and `dst` may be `src`."""
    sources, targets, device, stream, names = _pairs(src, "src", dst, "dst")
    word = as_number(factor, "factor", device)
    with names:
        default_context(device)._handle.scale(tensor_array(sources), tensor_array(targets), word.address, stream)
    mark_written(targets)


def axpby(a: float, x: Arrays, b: float, y: Arrays) -> None:
    """``y[i] = a * x[i] + b * y[i]``, paired by name, for gradient accumulation. With `b` 0 `y` is only written."""
    sources, targets, device, stream, names = _pairs(x, "x", y, "y")
    with names:
        default_context(device)._handle.axpby(real("a", a), tensor_array(sources), real("b", b),
                                              tensor_array(targets), stream)
    mark_written(targets)


def cast(src: Arrays, dst: Arrays) -> None:
    """``dst[i] = src[i]``, paired by name, in the dtype of `dst`, rounded to nearest even."""
    sources, targets, device, stream, names = _pairs(src, "src", dst, "dst")
    with names:
        default_context(device)._handle.cast(tensor_array(sources), tensor_array(targets), stream)
    mark_written(targets)


def norm(tensors: Arrays, norm_type: float = 2.0) -> float:
    """The norm over all elements of `tensors`, which must be on the CPU. `norm_type` is 2 or inf. NaN propagates."""
    return _norms(leaves_of(tensors, "tensors"), norm_type)[0]


def norms(tensors: Arrays, norm_type: float = 2.0) -> tuple[float, ...]:
    """The norm of each of `tensors`, which must be on the CPU. `norm_type` is 2 or inf. NaN propagates."""
    return _norms(leaves_of(tensors, "tensors"), norm_type)[1]


def clip_grad_norm_(grads: Arrays, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> float:
    """Limits the norm of all `grads` together to `max_norm`, in place, and returns the norm before, as PyTorch's.

    Parameters of PyTorch stand for their ``.grad``, if it is not None. `norm_type` is 2 or inf. Gradients with an inf
    or NaN stay as they are, or are a RuntimeError with `error_if_nonfinite`. For arrays on the CPU. With a scaler, use
    :meth:`gradscaler.GradScaler.clip_grad_norm_`, which clips in the step's pass.
    """
    limit = real("max_norm", max_norm)
    if not limit >= 0.0:
        raise ValueError(f"max_norm is {limit}; it must be >= 0")
    leaves = gradients_of(grads, "grads")
    found = _as_tensors(leaves)
    total = _norms(leaves, norm_type)[0]
    if not math.isfinite(total):
        if error_if_nonfinite:
            raise RuntimeError(f"the norm of the gradients is {total}")
        return total
    factor = limit / (total + 1e-6)
    if factor < 1.0:
        # Not scale(), whose factor is a float32: float64 is clipped by a float64.
        axpby(factor, found, 0.0, found)
    return total


def clip_grad_value_(grads: Arrays, clip_value: float) -> None:
    """Clamps every element of `grads` to ``[-clip_value, clip_value]`` in place. NaN stays NaN.

    Parameters of PyTorch stand for their ``.grad``, if it is not None.
    """
    # Only a scaler's list can be clamped; at scale 1 unscaling changes nothing.
    gradients = TensorList(gradients_of(grads, "grads"))
    with GradScaler(gradients.context, init_scale=1.0, history_capacity=0) as scaler:
        scaler.unscale_(gradients)
        scaler.clip_grad_value_(gradients, clip_value)


def _norms(leaves: trees.Leaves, norm_type: float) -> tuple[float, tuple[float, ...]]:
    found = _as_tensors(leaves, writable=False)
    if common_device(found, leaves) != "cpu":
        raise ValueError(f"{leaves.argument} are on {found[0].device}; norms of these are in the scaler's report")
    total = ctypes.c_double()
    each = (ctypes.c_double * len(found))()
    with named_errors(tensors=leaves):
        default_context("cpu")._handle.norm(tensor_array(found), norm_code(norm_type), ctypes.addressof(total),
                                            ctypes.addressof(each), 0)
    return total.value, tuple(each)


def _as_tensors(leaves: trees.Leaves, writable: bool = True) -> list[Tensor]:
    found = as_tensors(leaves, writable=writable)
    if writable:
        require_no_overlap(found, leaves.label)
    return found


def _pairs(src: Arrays, src_name: str, dst: Arrays, dst_name: str
           ) -> tuple[list[Tensor], list[Tensor], str, int, AbstractContextManager[None]]:
    """Sources and targets that belong together, by name; their device, the stream they are worked on in, and the
    context in which errors name them."""
    wanted, given = leaves_of(dst, dst_name), leaves_of(src, src_name)
    given = trees.reorder(given, trees.pair(given, wanted))
    sources, targets = as_tensors(given, writable=False), as_tensors(wanted)
    trees.require_shapes(given, [s.shape for s in sources], wanted, [t.shape for t in targets])
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if not same_order(source, target):
            raise ValueError(f"{given.label(i)} and {wanted.label(i)} have their elements in different orders: strides"
                             f" {source.strides} and {target.strides} (None: C order)")
    device = common_device(targets, wanted)
    common_device(sources, given, device)
    require_no_overlap(targets, wanted.label, sources, given.label)
    labels = (wanted.label, given.label)
    stream = common_stream([*targets, *sources], lambda i: labels[i // len(targets)](i % len(targets)))
    return sources, targets, device, stream, named_errors(None, **{src_name: given, dst_name: wanted})
