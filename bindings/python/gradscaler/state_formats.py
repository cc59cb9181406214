# SPDX-License-Identifier: Apache-2.0
"""State in 16 and 8 bits: the library's dtypes by slot. Scales of a slot `exp_avg` are called `exp_avg_scale`."""

from __future__ import annotations

import ctypes
import functools
import math
import operator
from typing import Any

from . import hyper
from ._enums import SLOT_NEEDS
from ._native import native
from .device import default_context
from .messages import named_errors

EMA, REMAINDER, SCALE = "ema", "remainder", "_scale"
#: Elements that share a scale.
GROUP = 32
#: What elements are stored as, where arrays have no such dtype.
STORED = {native.FP8_E4M3: "uint8", native.UINT8_LOG: "uint8", native.UFP16_E6M10: "int16", native.INT8: "int8",
          native.INT16: "int16", native.INT8_SOFTSIGN: "int8", native.UINT8_SQRT: "uint8"}
_SCALES = {native.FP8_E8M0: "uint8", native.INT16: "int16", native.FP16: "float16"}
#: What scales are stored as, by the dtype of the elements. Others have none.
SCALES = {code: _SCALES[native.scale_dtype(code)] for code in STORED if native.scale_dtype(code)}
#: Codes of squares, which in an earlier version were other ones: its scales were bytes, as those of UFP16_E6M10 are.
SQUARES = (native.UINT8_LOG, native.UFP16_E6M10)
#: Hyper-parameters as pairs of name and value; see slot_dtypes.
Options = tuple[tuple[str, Any], ...]


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


def slot_dtypes(kind: int, state: str, master: str | None, flags: int = 0, options: Options = ()) -> dict[str, int]:
    """The slots that state of this format may have, and the library's dtype of each with these `flags`: centered
    RMSprop keeps its two means in float32, and AMSGrad squares in 16 bits for 8. In 8 bits means of gradients that move
    slowly have another dtype, by `options`, where these are not the defaults."""
    every = _slot_flags(kind)
    probed = [_probed_slots(kind, state, master, each, options) for each in (every, flags & every)]
    return {slot: code for found in probed for slot, (code, _) in found.items()}


def _slot_flags(kind: int) -> int:
    """The flags that a kind has slots for."""
    return functools.reduce(operator.or_, (flag for flag in SLOT_NEEDS.get(kind, {}).values() if flag is not None), 0)


def numbers_per_tensor(kind: int) -> dict[str, int]:
    """The slots that have numbers per tensor, in float64, and how many."""
    return {slot: count for slot, (_, count) in _probed_slots(kind, "fp32", None, _slot_flags(kind)).items()
            if count != _PROBE_ELEMENTS}


@functools.cache
def possible_dtypes(kind: int, state: str, master: str | None = None) -> dict[str, frozenset[int]]:
    """The library's dtypes that each slot of this format may have, whatever the flags and hyper-parameters."""
    found = [slot_dtypes(kind, state, master, flags, _with_means(kind, beta))
             for flags in (0, _slot_flags(kind)) for beta in (0.5, 0.999999)]
    return {slot: frozenset(each[slot] for each in found) for slot in found[0]}


def _with_means(kind: int, beta: float) -> Options:
    """Options that give every mean this decay."""
    defaults = native.OptimizerOptions(kind)
    own = [name for name in ("beta1", "beta2", "beta3") if getattr(defaults, name)]
    return tuple((name, beta) for name in (*own, *["momentum"] * (None in SLOT_NEEDS.get(kind, {}).values())))


#: Elements of the tensor that _probed_slots asks with.
_PROBE_ELEMENTS = 7


@functools.lru_cache(maxsize=1024)
def _probed_slots(kind: int, state: str, master: str | None, flags: int, options: Options = ()
                  ) -> dict[str, tuple[int, int]]:
    """Asks the library, which decides."""
    found = native.OptimizerOptions(kind)
    hyper.apply(found, dict(options))
    found.state_format, found.master_format = hyper.STATE[state], hyper.MASTER[master]
    found.flags |= flags
    if None in SLOT_NEEDS.get(kind, {}).values():
        found.momentum = found.momentum or 0.5
    memory = (ctypes.c_uint16 * (2 * _PROBE_ELEMENTS))()
    context, lists = default_context("cpu")._handle, []
    for element in range(2):
        array = state_array(ctypes.addressof(memory) + 2 * _PROBE_ELEMENTS * element, _PROBE_ELEMENTS, native.BF16)
        lists.append(native.TensorList(context, array))
    with named_errors():
        optimizer = native.Optimizer(context, found, *lists, None, None, None, None, None)
    tensor, slots = native.Tensor(), {}
    for slot in range(optimizer.state_count()):
        optimizer.state_tensor(slot, 0, tensor)
        slots[optimizer.state_name(slot)] = int(tensor.dtype), int(tensor.count)
    return slots


@functools.lru_cache(maxsize=1024)
def code_in(kind: int, slot: str, dtype: str) -> int | None:
    """The library's dtype with scales of a slot, in some format, whose elements are stored as `dtype`."""
    return next((code for state in hyper.STATE for code in possible_dtypes(kind, state).get(slot, ())
                 if code in SCALES and STORED[code] == dtype), None)


def saved_code(kind: int, slot: str, dtype: str, scales: str | None) -> int | None:
    """The library's dtype of a slot that is saved in elements of `dtype`, with `scales` of this one, if with any; None
    if it has none."""
    if slot == REMAINDER:
        return {"int8": native.INT8, "int16": native.INT16}.get(dtype)
    if scales is not None:
        code = code_in(kind, slot, dtype)
        return code if code is not None and SCALES[code] == scales else None
    # Bits of bfloat16 are uint16 in NumPy.
    return {"bfloat16": native.BF16, "uint16": native.BF16, "float32": native.FP32}.get(dtype)


#: What messages say of squares in the codes of an earlier version.
EARLIER = ("codes of an earlier version, which this one does not read; load them there and save fp32_state_dict(),"
           " which every version loads")
