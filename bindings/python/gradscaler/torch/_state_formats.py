# SPDX-License-Identifier: Apache-2.0
"""State in 16 and 8 bits as tensors of PyTorch. Every conversion is the library's; here is where the tensors lie.

A slot with scales has two tensors: `exp_avg_codes` in the parameter's shape and order, and `exp_avg_scale` with one for
each 32 elements in the order of memory: bytes, or int16 for squares in 8 bits. Codes that PyTorch has no dtype for are
integers. Of a DTensor each rank has the codes and scales of its shard. They are not called `exp_avg`, since
torch.distributed.checkpoint and torch.optim copy by name and would take them for numbers; a state dict has a number
there that stands for the code, by which it is refused.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import hyper
from .._enums import SLOTS
from .._native import native
from ..memory import DTYPE_NAMES, DTYPES
from ..state_formats import (
    EMA,
    GROUP,
    REMAINDER,
    SCALE,
    SCALES,
    STORED,
    Options,
    code_in,
    groups_axis,
    groups_of,
    groups_shape,
    saved_code,
    slot_dtypes,
    state_array,
)
from ._contexts import context_of, stream_of
from ._guards import has_same_order
from ._shards import dtensor, is_dtensor, local

#: The fp32 master of a 16-bit parameter.
MASTER = "master_param"
#: The keys of param groups that PyTorch's classes do not have, where they are not the defaults. A state dict does not
#: change these.
FORMAT_KEYS = ("state", "master", "ema_decay", "ema_warmup", "cautious", "cautious_decay", "param_min", "param_max",
               "ungrouped", "codes")
#: The key that a group with state in codes has in a state dict. It lets torch.distributed.checkpoint refuse checkpoints
#: of earlier versions, whose numbers it would copy: they had other codes of squares, and codes of parameters that have
#: float32 now (see param_slot_dtypes). The last of them had the key "ungrouped".
CODES_VERSION = {"codes": 2}
#: The end of the name of codes with scales, after their slot.
CODES_SUFFIX = "_codes"
#: Dtypes that have masters.
NARROW_DTYPES = (torch.float16, torch.bfloat16)
#: The library's codes of PyTorch's dtypes.
DTYPE_CODES = {getattr(torch, name): code for name, code in DTYPES.items()}
_DTYPES = {code: getattr(torch, name) for code, name in {**DTYPE_NAMES, **STORED}.items()}
_SCALE_DTYPES = {code: getattr(torch, name) for code, name in SCALES.items()}
# Numbers per tensor of a slot that has more than one.
_NUMBERS = {"average": 2}


def format_of(group: Mapping[str, Any], p: Any, label: str, has_master: bool = False) -> tuple[str, str | None]:
    """`state` and `master` of a param group; ValueError naming both and the parameter if it cannot have them, as with a
    master of another kind (`has_master`)."""
    state, master = group.get("state", "fp32"), group.get("master")
    hyper.format_code("state", state, hyper.STATE)
    hyper.format_code("master", master, hyper.MASTER)
    if state != "fp32" and p.dtype == torch.float64:
        raise ValueError(f"state is {state!r}, but {label} is float64, whose state is float64; put it into a param"
                         " group with state='fp32'")
    if master is not None and p.dtype not in NARROW_DTYPES:
        raise ValueError(f"master is {master!r}, but {label} is {str(p.dtype).rpartition('.')[2]}; it must be float16"
                         " or bfloat16: put it into a param group with master=None")
    if master is not None and has_master:
        raise ValueError(f"master is {master!r} in the group of {label}, and master_weights is True; a parameter has"
                         " one kind of master")
    return state, master


def may_split_groups(p: Any) -> bool:
    """Returns whether a shard of some first rows of a parameter may cut a group of 32 elements, as of every vector."""
    return not groups_axis(tuple(p.shape))


def param_slot_dtypes(p: Any, kind: int, state: str, master: str | None, flags: int = 0, options: Options = ()
                      ) -> dict[str, int]:
    """The library's dtype of each slot of a parameter, as slot_dtypes. Where shards may cut groups, state is float32:
    so every number of ranks has the same, and one process too. A cut group would have several scales, and other random
    bits."""
    codes = slot_dtypes(kind, state, master, flags, options)
    if not may_split_groups(p):
        return codes
    full = int(native.FP32)
    return {slot: full if code in SCALES or code == native.BF16 else code for slot, code in codes.items()}


def tensor_names(slot: str, code: int) -> tuple[str, ...]:
    """The names of the tensors of a slot: values or codes, then the scales if there are any."""
    return (slot + CODES_SUFFIX, slot + SCALE) if code in SCALES else (slot,)


def slot_name(entry: Mapping[str, Any], slot: str) -> str:
    """The name of the values or codes of a slot in an entry. Values that were set beside codes count."""
    return slot + CODES_SUFFIX if entry.get(slot) is None and slot + CODES_SUFFIX in entry else slot


def slot_tensor(entry: Mapping[str, Any], slot: str) -> Any:
    """The values or codes of a slot; None if there are none."""
    return entry.get(slot_name(entry, slot))


def step_counter(steps: float) -> Any:
    return torch.tensor(steps, dtype=torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32,
                        device="cpu")


def full_dtype(p: Any) -> Any:
    """The dtype of the full state of a parameter."""
    return torch.float64 if p.dtype == torch.float64 else torch.float32


def all_names(kind: int) -> set[str]:
    slots = SLOTS[kind]
    return {MASTER, REMAINDER, EMA, *slots, *(slot + end for slot in slots for end in (CODES_SUFFIX, SCALE))}


def initial_state(p: Any, slot: str, code: int, value: float = 0.0) -> dict[str, Any]:
    """The tensors of a slot of a parameter, with one value."""
    if code == native.FP64:  # numbers per tensor
        return {slot: torch.zeros(_NUMBERS.get(slot, 1), dtype=torch.float64, device=local(p).device)}
    if code == native.FP32:
        # Of zeros, which take half the time of other values.
        return {slot: torch.full_like(p, value, dtype=full_dtype(p), requires_grad=False) if value else
                torch.zeros_like(p, dtype=full_dtype(p), requires_grad=False)}
    if value != 0.0:
        return _encoded(p, slot, code, torch.full_like(p, value, dtype=torch.float32, requires_grad=False))
    found = {tensor_names(slot, code)[0]: torch.zeros_like(p, dtype=_DTYPES[code], requires_grad=False)}
    if code in SCALES:
        found[slot + SCALE] = _scales(p, code)
    return found


def convert_state(entry: dict[str, Any], p: Any, kind: int, codes: Mapping[str, int], label: str,
                  has_master: bool) -> None:
    """Converts the state of a parameter to `codes`, in its memory order.

    Masters become remainders, and remainders masters if there are to be any (`has_master`).
    """
    if entry.get(EMA) is not None:
        entry[EMA] = in_full_precision(entry[EMA], p)
    for slot, code in codes.items():
        if code == native.FP64 and entry.get(slot) is not None:
            entry[slot] = entry[slot].to(torch.float64).reshape(-1)
            continue
        if slot == REMAINDER or slot_tensor(entry, slot) is None or _has_format(entry, p, slot, code):
            continue
        values = in_full_precision(_decoded(entry, slot, kind, label), p)
        for end in ("", CODES_SUFFIX, SCALE):
            entry.pop(slot + end, None)
        if code != native.FP32 and values.shape != p.shape:
            raise ValueError(f"{label}'s state {slot!r} has shape {tuple(values.shape)}, but {label} has"
                             f" {tuple(p.shape)}")
        entry.update({slot: values} if code == native.FP32 else _encoded(p, slot, code, values))
    _convert_master(entry, p, kind, codes.get(REMAINDER), has_master)


def _convert_master(entry: dict[str, Any], p: Any, kind: int, code: int | None, has_master: bool) -> None:
    remainder = entry.get(REMAINDER)
    own = int(native.INT16) if remainder is None else slot_code(entry, REMAINDER, kind)
    if code is None:
        entry.pop(REMAINDER, None)
        if remainder is not None and has_master and entry.get(MASTER) is None:
            entry[MASTER] = converted(_in_memory_order(remainder, p), own, None, p, native.FP32, p)
        return
    master = entry.pop(MASTER, None)
    if master is not None:
        entry[REMAINDER] = converted(in_full_precision(master, p), native.FP32, None, p, code, p)
    elif remainder is None:
        entry.update(initial_state(p, REMAINDER, code))
    else:
        remainder = _in_memory_order(remainder, p)
        entry[REMAINDER] = remainder if own == code else converted(remainder, own, None, p, code)


def in_full_precision(value: Any, p: Any) -> Any:
    """State of a parameter, with 32 bits or more and in the memory order that the parameter has now."""
    dtype = torch.float32 if value.dtype in NARROW_DTYPES else value.dtype
    return _in_memory_order(value, p, dtype).to(dtype)


def _in_memory_order(value: Any, p: Any, dtype: Any = None) -> Any:
    if value.shape != p.shape or has_same_order(value, p) or is_dtensor(value) != is_dtensor(p):
        return value
    return torch.empty_like(p, dtype=dtype or value.dtype, requires_grad=False).copy_(value)


def slot_code(entry: Mapping[str, Any], slot: str, kind: int) -> int:
    """The library's dtype of a slot that is there. Whether its scales are those of it is not asked."""
    name = slot_name(entry, slot)
    dtype = dtype_name(entry[name])
    return (saved_code(kind, slot, dtype, None) if name == slot else code_in(kind, slot, dtype)) or int(native.FP32)


def dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).rpartition(".")[2]


def _has_format(entry: dict[str, Any], p: Any, slot: str, code: int) -> bool:
    name = slot_name(entry, slot)
    value, scales = entry[name], None if name == slot else entry.get(slot + SCALE)
    if (name, scales is not None) != (tensor_names(slot, code)[0], code in SCALES) or value.shape != p.shape:
        return False
    if scales is not None and scales.dtype != _SCALE_DTYPES[code]:
        return False
    is_double = code == native.FP32 and value.dtype == torch.float64
    if not (value.dtype == _DTYPES[code] or is_double) or not has_same_order(value, p):
        return False
    if scales is not None and not is_dtensor(p) and scales.shape != scales_layout(p)[0]:
        if scales.numel() != math.prod(scales_layout(p)[0]):
            return False
        entry[slot + SCALE] = scales.reshape(scales_layout(p)[0])
    return True


def _decoded(entry: Mapping[str, Any], slot: str, kind: int, label: str) -> Any:
    value, scales = slot_tensor(entry, slot), entry.get(slot + SCALE)
    if slot_name(entry, slot) == slot:
        return value
    needed, name = groups_of(local(value).numel()), slot + SCALE
    if scales is None:
        raise ValueError(f"{label}'s state has {slot + CODES_SUFFIX!r} without {name!r}")
    code = code_in(kind, slot, dtype_name(value))
    if code is None:
        raise ValueError(f"{label}'s state {slot + CODES_SUFFIX!r} is {value.dtype}, which no format has")
    if scales.dtype != _SCALE_DTYPES[code] or local(scales).numel() < needed or not local(scales).is_contiguous():
        raise ValueError(f"{label}'s state {name!r} is {local(scales).numel()} x {scales.dtype}; it must be a"
                         f" contiguous {SCALES[code]} tensor of {needed} scales")
    return converted(value, code, scales, value, native.FP32)


def _encoded(p: Any, slot: str, code: int, values: Any) -> dict[str, Any]:
    found = initial_state(p, slot, code)
    _convert(values.float(), native.FP32, None, found[tensor_names(slot, code)[0]], code, found.get(slot + SCALE))
    return found


def converted(source: Any, source_code: int, scales: Any, like: Any, code: int, weights: Any = None) -> Any:
    found = torch.empty_like(like, dtype=_DTYPES[code], requires_grad=False)
    _convert(source, source_code, scales, found, code, None, weights)
    return found


def _convert(source: Any, source_code: int, source_scales: Any, target: Any, target_code: int, target_scales: Any,
             weights: Any = None) -> None:
    """Converts one tensor, or one shard; they are in one order."""
    context = context_of("cpu" if local(source).device.type == "cpu" else str(local(source).device))
    weight = None if weights is None else _native(weights.detach(), DTYPE_CODES[weights.dtype], None)
    context._handle.convert_state(_native(source, source_code, source_scales), weight,
                                  _native(target, target_code, target_scales), stream_of(context))


def _native(tensor: Any, code: int, scales: Any) -> Any:
    if local(tensor).dtype != _DTYPES[code]:
        raise ValueError(f"state of dtype {local(tensor).dtype} is not of this package; it must be {_DTYPES[code]}")
    return state_array(local(tensor).data_ptr(), local(tensor).numel(), code,
                       local(scales).data_ptr() if code in SCALES else None)


# The layout of scales.


def scales_layout(p: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    """Shape of the scales of a parameter, of those of its shard here, and their placements.

    Where rows are multiples of 32 elements, scales have the parameter's rows: then they are sharded as it is, and every
    number of ranks has the same. Else they are flat, and each shard has its own.
    """
    shape, own = tuple(p.shape), local(p)
    axis = groups_axis(shape)
    placements = p.placements if is_dtensor(p) else ()
    sharded = [(placement.dim % len(shape), p.device_mesh.size(dim)) for dim, placement in enumerate(placements)
               if placement.is_shard()]
    if axis is not None and own.is_contiguous() and all(_keeps_groups(shape, axis, dim, ranks)
                                                        for dim, ranks in sharded):
        return groups_shape(shape), (*own.shape[:axis], math.prod(own.shape[axis:]) // GROUP), placements
    largest, ranks = list(shape), 1
    for dim, count in sharded:
        largest[dim] = -(-largest[dim] // count)
        ranks *= count
    groups = groups_of(math.prod(largest))
    if placements:
        shard = sys.modules["torch.distributed.tensor"].Shard(0)
        placements = tuple(shard if placement.is_shard() else placement for placement in placements)
    return (ranks * groups,), (groups,), placements


def _keeps_groups(shape: tuple[int, ...], axis: int, dim: int, ranks: int) -> bool:
    return dim < axis or (dim == axis and shape[axis] % ranks == 0
                          and math.prod(shape[axis:]) // ranks % GROUP == 0)


def _scales(p: Any, code: int) -> Any:
    shape, own, placements = scales_layout(p)
    found = torch.zeros(own, dtype=_SCALE_DTYPES[code], device=local(p).device)
    if not is_dtensor(p):
        return found
    strides = [math.prod(shape[dim + 1:]) for dim in range(len(shape))]
    return dtensor().from_local(found, p.device_mesh, placements, run_check=False, shape=torch.Size(shape),
                                stride=tuple(strides))


def offsets_of(params: Iterable[Any]) -> list[int]:
    """The offset of each parameter in the whole, for stochastic rounding; of a DTensor, that of its shard."""
    found, whole = [], 0
    for p in params:
        found.append(whole + _first_of_shard(p) // GROUP * GROUP)
        whole += groups_of(p.numel()) * GROUP
    return found


def _first_of_shard(p: Any) -> int:
    if not is_dtensor(p) or p.device_mesh.get_coordinate() is None:
        return 0
    extents, first = list(p.shape), [0] * p.dim()
    for placement, rank, ranks in zip(p.placements, p.device_mesh.get_coordinate(), p.device_mesh.shape, strict=True):
        if placement.is_shard():
            dim = placement.dim % p.dim()
            part = -(-extents[dim] // ranks)
            begin = min(part * rank, extents[dim])
            first[dim] += begin
            extents[dim] = min(part, extents[dim] - begin)
    return sum(index * math.prod(p.shape[dim + 1:]) for dim, index in enumerate(first))
