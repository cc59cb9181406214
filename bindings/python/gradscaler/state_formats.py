# SPDX-License-Identifier: Apache-2.0
"""State in 16 and 8 bits: the library's dtypes by slot. Scales of a slot `exp_avg` are called `exp_avg_scale`."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

from . import hyper
from ._enums import SLOT_NEEDS
from ._native import native
from .device import default_context

EMA, REMAINDER, SCALE = "ema", "remainder", "_scale"
#: Elements that share a scale, and the dtypes that have scales.
GROUP = 32
GROUPED = (native.FP8_E4M3, native.UFP8_E4M4, native.UFP16_E5M11, native.INT8_SOFTSIGN, native.UINT8_SQRT)
#: What elements are stored as, where arrays have no such dtype.
STORED = {native.FP8_E4M3: "uint8", native.UFP8_E4M4: "uint8", native.UFP16_E5M11: "int16", native.INT8: "int8",
          native.INT16: "int16", native.INT8_SOFTSIGN: "int8", native.UINT8_SQRT: "uint8"}


def groups_of(elements: int) -> int:
    return -(-elements // GROUP)


def groups_axis(shape: tuple[int, ...]) -> int | None:
    """The last dimension from which on the rest is a multiple of 32."""
    return next((axis for axis in reversed(range(len(shape))) if math.prod(shape[axis:]) % GROUP == 0), None)


def groups_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an array with one element for each group of 32 of an array, in the order of memory.

    It has the leading dimensions of the array as far as the rest is a multiple of 32, and is sharded as these are.
    """
    axis = groups_axis(shape)
    return (groups_of(math.prod(shape)),) if axis is None else (*shape[:axis], math.prod(shape[axis:]) // GROUP)


def state_array(address: int, count: int, code: int, scales: int | None = None) -> Any:
    """One tensor of state for the library, by its address and that of its scales."""
    array = native.TensorArray(1)
    array.add(address, count, code, None)
    if scales is not None:
        array.set_scales(scales)
    return array


def slot_dtypes(kind: int, state: str, master: str | None, centered: bool = False) -> dict[str, int]:
    """The slots that state of this format may have, and the library's dtype of each; if `centered`, those of centered
    RMSprop, which keeps its two means in float32."""
    found = {**_probed_slots(kind, state, master, True), **_probed_slots(kind, state, master, centered)}
    return {slot: code for slot, (code, _) in found.items()}


def numbers_per_tensor(kind: int) -> dict[str, int]:
    """The slots that have numbers per tensor, in float64, and how many."""
    return {slot: count for slot, (_, count) in _probed_slots(kind, "fp32", None, True).items()
            if count != _PROBE_ELEMENTS}


#: Elements of the tensor that _slots_of asks with.
_PROBE_ELEMENTS = 7


@functools.cache
def _probed_slots(kind: int, state: str, master: str | None, centered: bool) -> dict[str, tuple[int, int]]:
    options = native.OptimizerOptions(kind)
    options.state_format, options.master_format = hyper.STATE[state], hyper.MASTER[master]
    for needed in SLOT_NEEDS.get(kind, {}).values():
        if needed is None:
            options.momentum = 0.5
        elif centered or needed != native.OPTIMIZER_CENTERED:
            options.flags |= needed
    memory = (ctypes.c_uint16 * (2 * _PROBE_ELEMENTS))()
    context, lists = default_context("cpu")._handle, []
    for element in range(2):
        array = state_array(ctypes.addressof(memory) + 2 * _PROBE_ELEMENTS * element, _PROBE_ELEMENTS, native.BF16)
        lists.append(native.TensorList(context, array))
    optimizer, tensor = native.Optimizer(context, options, *lists, None, None, None, None, None), native.Tensor()
    found = {}
    for slot in range(optimizer.state_count()):
        optimizer.state_tensor(slot, 0, tensor)
        found[optimizer.state_name(slot)] = int(tensor.dtype), int(tensor.count)
    return found


def saved_code(kind: int, slot: str, dtype: str, has_scales: bool) -> int | None:
    """The library's dtype of a slot that is saved in elements of `dtype`; None if it has none."""
    if slot == REMAINDER:
        return {"int8": native.INT8, "int16": native.INT16}.get(dtype)
    if has_scales:
        state = {"uint8": "8bit", "int16": "16bit"}.get(dtype)
        code = None if state is None else slot_dtypes(kind, state, None)[slot]
        return code if code in GROUPED else None
    # Bits of bfloat16 are uint16 in NumPy.
    return {"bfloat16": native.BF16, "uint16": native.BF16, "float32": native.FP32}.get(dtype)
