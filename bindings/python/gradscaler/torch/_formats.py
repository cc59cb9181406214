# SPDX-License-Identifier: Apache-2.0
"""State in 16 and 8 bits as tensors of PyTorch. Every conversion is the library's; here is where the tensors lie.

A slot with scales has two tensors: `exp_avg_codes` in the parameter's shape and order, and `exp_avg_scale` with a byte
for each 32 elements in the order of memory. Codes that PyTorch has no dtype for are integers. Of a DTensor each rank
has the codes and scales of its shard. They are not called `exp_avg`, since torch.distributed.checkpoint and torch.optim
copy by name and would take them for numbers; a state dict has the number of their bits there, by which it is refused.
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
from ..formats import (
    EMA,
    GROUP,
    GROUPED,
    REMAINDER,
    SCALE,
    STORED,
    codes_of,
    groups_axis,
    groups_of,
    groups_shape,
    held_code,
    numbers_of,
    state_array,
)
from ..memory import DTYPE_NAMES, DTYPES
from ._seen import is_in_order
from ._shards import dtensor, is_dtensor, local
from ._threads import context_of, stream_of

#: The fp32 master of a 16-bit parameter.
MASTER = "master_param"
#: What param groups have for it, where it is not the default. A state dict does not change these.
FORMAT_KEYS = ("state", "master", "ema_decay", "ema_warmup", "ungrouped")
#: What a group with state in codes says of parameters that have float32 state all the same: see codes_for. It lets
#: torch.distributed.checkpoint refuse a checkpoint that has codes of these, whose numbers it would copy.
UNGROUPED = {"ungrouped": "fp32"}
#: What codes with scales are called, after the name of their slot.
CODED = "_codes"
#: What a state dict has in the place of a slot that is in codes, and their format; PyTorch flattens no words.
TOLD = {8: "8bit", 16: "16bit"}
#: Dtypes that have masters.
NARROW = (torch.float16, torch.bfloat16)
#: The library's codes of PyTorch's dtypes.
CODES = {getattr(torch, name): code for name, code in DTYPES.items()}
_DTYPES = {code: getattr(torch, name) for code, name in {**DTYPE_NAMES, **STORED}.items()}
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
    if master is not None and p.dtype not in NARROW:
        raise ValueError(f"master is {master!r}, but {label} is {str(p.dtype).rpartition('.')[2]}; it must be float16"
                         " or bfloat16: put it into a param group with master=None")
    if master is not None and has_master:
        raise ValueError(f"master is {master!r} in the group of {label}, and master_weights is True; a parameter has"
                         " one kind of master")
    return state, master


def is_ungrouped(p: Any) -> bool:
    """Whether a shard of some first rows of a parameter may cut a group of 32 elements, as of every vector."""
    return not groups_axis(tuple(p.shape))


def codes_for(p: Any, kind: int, state: str, master: str | None, centered: bool = False) -> dict[str, int]:
    """The library's dtype of each slot of a parameter, as codes_of. Where shards may cut groups, slots that have scales
    are float32: so every number of ranks has the same state, and one process too."""
    codes = codes_of(kind, state, master, centered)
    if not is_ungrouped(p):
        return codes
    return {slot: int(native.FP32) if code in GROUPED else code for slot, code in codes.items()}


def names_of(slot: str, code: int) -> tuple[str, ...]:
    """The names of the tensors of a slot: values or codes, then the scales if there are any."""
    return (slot + CODED, slot + SCALE) if code in GROUPED else (slot,)


def _name(entry: Mapping[str, Any], slot: str) -> str:
    """What the values or codes of a slot are called that an entry has. Values that were set beside codes count."""
    return slot + CODED if entry.get(slot) is None and slot + CODED in entry else slot


def held(entry: Mapping[str, Any], slot: str) -> Any:
    """The values or codes of a slot; None if there are none."""
    return entry.get(_name(entry, slot))


def counter(steps: float) -> Any:
    return torch.tensor(steps, dtype=torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32,
                        device="cpu")


def wide(p: Any) -> Any:
    """The dtype of the full state of a parameter."""
    return torch.float64 if p.dtype == torch.float64 else torch.float32


def all_names(kind: int) -> set[str]:
    return {MASTER, REMAINDER, EMA, *SLOTS[kind], *(slot + end for slot in SLOTS[kind] for end in (CODED, SCALE))}


def fresh(p: Any, slot: str, code: int, value: float = 0.0) -> dict[str, Any]:
    """The tensors of a slot of a parameter, with one value."""
    if code == native.FP64:  # numbers per tensor
        return {slot: torch.zeros(_NUMBERS.get(slot, 1), dtype=torch.float64, device=local(p).device)}
    if code == native.FP32:
        # Of zeros, which take half the time of other values.
        return {slot: torch.full_like(p, value, dtype=wide(p), requires_grad=False) if value else
                torch.zeros_like(p, dtype=wide(p), requires_grad=False)}
    if value != 0.0:
        return _encoded(p, slot, code, torch.full_like(p, value, dtype=torch.float32, requires_grad=False))
    found = {names_of(slot, code)[0]: torch.zeros_like(p, dtype=_DTYPES[code], requires_grad=False)}
    if code in GROUPED:
        found[slot + SCALE] = _scales(p)
    return found


def fit(entry: dict[str, Any], p: Any, kind: int, codes: Mapping[str, int], label: str, has_master: bool) -> None:
    """Converts the state of a parameter to `codes`, in its memory order.

    Masters become remainders, and remainders masters if there are to be any (`has_master`).
    """
    if entry.get(EMA) is not None:
        entry[EMA] = fitted(entry[EMA], p)
    for slot, code in codes.items():
        if code == native.FP64 and entry.get(slot) is not None:
            entry[slot] = entry[slot].to(torch.float64).reshape(-1)
            continue
        if slot == REMAINDER or held(entry, slot) is None or _is_fit(entry, p, slot, code):
            continue
        values = fitted(_decoded(entry, slot, kind, label), p)
        for end in ("", CODED, SCALE):
            entry.pop(slot + end, None)
        if code != native.FP32 and values.shape != p.shape:
            raise ValueError(f"{label}'s state {slot!r} has shape {tuple(values.shape)}, but {label} has"
                             f" {tuple(p.shape)}")
        entry.update({slot: values} if code == native.FP32 else _encoded(p, slot, code, values))
    _fit_master(entry, p, kind, codes.get(REMAINDER), has_master)


def _fit_master(entry: dict[str, Any], p: Any, kind: int, code: int | None, has_master: bool) -> None:
    remainder = entry.get(REMAINDER)
    own = int(native.INT16) if remainder is None else _held_code(entry, REMAINDER, kind)
    if code is None:
        entry.pop(REMAINDER, None)
        if remainder is not None and has_master and entry.get(MASTER) is None:
            entry[MASTER] = _converted(_in_order(remainder, p), own, None, p, native.FP32, p)
        return
    master = entry.pop(MASTER, None)
    if master is not None:
        entry[REMAINDER] = _converted(fitted(master, p), native.FP32, None, p, code, p)
    elif remainder is None:
        entry.update(fresh(p, REMAINDER, code))
    else:
        remainder = _in_order(remainder, p)
        entry[REMAINDER] = remainder if own == code else _converted(remainder, own, None, p, code)


def fitted(value: Any, p: Any) -> Any:
    """State of a parameter, with 32 bits or more and in the memory order that the parameter has now."""
    dtype = torch.float32 if value.dtype in NARROW else value.dtype
    return _in_order(value, p, dtype).to(dtype)


def _in_order(value: Any, p: Any, dtype: Any = None) -> Any:
    if value.shape != p.shape or is_in_order(value, p) or is_dtensor(value) != is_dtensor(p):
        return value
    return torch.empty_like(p, dtype=dtype or value.dtype, requires_grad=False).copy_(value)


def _held_code(entry: Mapping[str, Any], slot: str, kind: int) -> int:
    name = _name(entry, slot)
    dtype = str(entry[name].dtype).rpartition(".")[2]
    return held_code(kind, slot, dtype, name != slot) or int(native.FP32)


def _is_fit(entry: dict[str, Any], p: Any, slot: str, code: int) -> bool:
    name = _name(entry, slot)
    value, scales = entry[name], None if name == slot else entry.get(slot + SCALE)
    if (name, scales is not None) != (names_of(slot, code)[0], code in GROUPED) or value.shape != p.shape:
        return False
    is_double = code == native.FP32 and value.dtype == torch.float64
    if not (value.dtype == _DTYPES[code] or is_double) or not is_in_order(value, p):
        return False
    if scales is not None and not is_dtensor(p) and scales.shape != _layout(p)[0]:
        if scales.numel() != math.prod(_layout(p)[0]):
            return False
        entry[slot + SCALE] = scales.reshape(_layout(p)[0])
    return True


def _decoded(entry: Mapping[str, Any], slot: str, kind: int, label: str) -> Any:
    value, scales = held(entry, slot), entry.get(slot + SCALE)
    if _name(entry, slot) == slot:
        return value
    needed, name = groups_of(local(value).numel()), slot + SCALE
    if scales is None:
        raise ValueError(f"{label}'s state has {slot + CODED!r} without {name!r}")
    if scales.dtype != torch.uint8 or local(scales).numel() < needed or not local(scales).is_contiguous():
        raise ValueError(f"{label}'s state {name!r} is {local(scales).numel()} x {scales.dtype}; it must be a"
                         f" contiguous uint8 tensor of {needed} scales")
    return _converted(value, _held_code(entry, slot, kind), scales, value, native.FP32)


def _encoded(p: Any, slot: str, code: int, values: Any) -> dict[str, Any]:
    found = fresh(p, slot, code)
    _convert(values.float(), native.FP32, None, found[names_of(slot, code)[0]], code, found.get(slot + SCALE))
    return found


def _converted(source: Any, source_code: int, scales: Any, like: Any, code: int, weights: Any = None) -> Any:
    found = torch.empty_like(like, dtype=_DTYPES[code], requires_grad=False)
    _convert(source, source_code, scales, found, code, None, weights)
    return found


def _convert(source: Any, source_code: int, source_scales: Any, target: Any, target_code: int, target_scales: Any,
             weights: Any = None) -> None:
    """Converts one tensor, or one shard; they are in one order."""
    context = context_of("cpu" if local(source).device.type == "cpu" else str(local(source).device))
    weight = None if weights is None else _native(weights.detach(), CODES[weights.dtype], None)
    context._handle.convert_state(_native(source, source_code, source_scales), weight,
                                  _native(target, target_code, target_scales), stream_of(context))


def _native(tensor: Any, code: int, scales: Any) -> Any:
    if local(tensor).dtype != _DTYPES[code]:
        raise ValueError(f"state of dtype {local(tensor).dtype} is not of this package; it must be {_DTYPES[code]}")
    return state_array(local(tensor).data_ptr(), local(tensor).numel(), code,
                       local(scales).data_ptr() if code in GROUPED else None)


# Where scales lie.


def _layout(p: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
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


def _scales(p: Any) -> Any:
    shape, own, placements = _layout(p)
    found = torch.zeros(own, dtype=torch.uint8, device=local(p).device)
    if not is_dtensor(p):
        return found
    strides = [math.prod(shape[dim + 1:]) for dim in range(len(shape))]
    return dtensor().from_local(found, p.device_mesh, placements, run_check=False, shape=torch.Size(shape),
                                stride=tuple(strides))


def offsets_of(params: Iterable[Any]) -> list[int]:
    """Where each parameter begins in the whole, for stochastic rounding; of a DTensor, where its shard does."""
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


# State dicts.


def told(entry: dict[str, Any]) -> dict[str, Any]:
    """State of a parameter as a state dict has it."""
    bits = {name.removesuffix(CODED): 8 * value.element_size() for name, value in entry.items() if name.endswith(CODED)}
    return {**entry, **bits}


def untold(kind: int, state_dict: Mapping[str, Any]) -> dict[Any, Any]:
    """The state in a state dict, as before :func:`told`. ValueError if something has mixed two formats."""
    state = dict(state_dict["state"])
    for group in state_dict["param_groups"]:
        for key in group["params"]:
            if key in state:
                label = f"state_dict['state'][{key!r}]"
                state[key] = _untold(kind, state[key], label)
                _require_as_told(kind, group, state[key], label)
    return state


def _untold(kind: int, saved: Mapping[str, Any], label: str) -> dict[str, Any]:
    found = dict(saved)
    for slot in SLOTS[kind]:
        value, coded = saved.get(slot), slot + CODED
        if coded in saved and isinstance(value, torch.Tensor):
            raise ValueError(f"{label}[{slot!r}] are numbers, and {coded!r} is there too; leave out one of them")
        if coded not in saved and type(value) is int and value in TOLD:
            raise ValueError(f"{label}[{slot!r}] is {value}, for codes of state={TOLD[value]!r}:"
                             " torch.distributed.checkpoint copies numbers and converts no formats. Load it into an"
                             " optimizer with the `state` and `master` that were saved, whose state_dict()"
                             " load_state_dict() converts, or save fp32_state_dict()")
        if coded in saved:
            found.pop(slot, None)
        elif slot + SCALE in saved and slot in saved:
            # Of an earlier version.
            found[coded] = found.pop(slot)
    return found


def _require_as_told(kind: int, group: Mapping[str, Any], saved: Mapping[str, Any], label: str) -> None:
    """ValueError if integers in the state of a parameter are not of the formats that its param group was saved with:
    torch.distributed.checkpoint has copied them into those of another format."""
    state, master = group.get("state", "fp32"), group.get("master")
    if state not in hyper.STATE or master not in hyper.MASTER:
        return
    codes = codes_of(kind, state, master)
    for slot in (*SLOTS[kind], REMAINDER):
        name = _name(saved, slot)
        value: Any = saved.get(name)
        if slot in codes and isinstance(value, torch.Tensor) and (slot == REMAINDER or name != slot) and (
                _held_code(saved, slot, kind) != codes[slot]):
            raise ValueError(f"{label}[{name!r}] is {str(value.dtype).rpartition('.')[2]}, which is no format of"
                             f" state={state!r}, master={master!r} that its param group was saved with:"
                             " torch.distributed.checkpoint copies numbers and converts no formats. Load it into an"
                             " optimizer with these, whose state_dict() load_state_dict() converts")


def require_loadable(kind: int, p: Any, saved: Mapping[str, Any], label: str) -> None:
    """ValueError unless `saved`, state of a parameter, has its shape, and numbers where these belong."""
    names, numbers = all_names(kind), numbers_of(kind)
    slots = {name for name in names if not name.endswith(SCALE)}
    for slot, value in saved.items():
        own = f"{label}[{slot!r}]"
        if slot in ("step", "mu_product"):
            number = _number(value)
            if not 0.0 <= number <= 2.0**53 or (slot == "step" and number != int(number)):
                raise ValueError(f"{own} is {value!r}; it must be a {'count of steps' if slot == 'step' else 'number'}")
        if slot in names and value is not None and not isinstance(value, torch.Tensor):
            raise ValueError(f"{own} is {type(value).__name__}; it must be a tensor")
        if slot in names - slots and value is not None and is_dtensor(p) and tuple(value.shape) != _layout(p)[0]:
            raise ValueError(f"{own} has shape {tuple(value.shape)}, but here the shards have {_layout(p)[0]}: their"
                             " groups of 32 elements are others; save fp32_state_dict() to load it on any number of"
                             " ranks")
        if slot in numbers and value is not None:
            if value.numel() != numbers[slot]:
                raise ValueError(f"{own} has {value.numel()} numbers; it must have {numbers[slot]}")
        elif slot in slots and value is not None and tuple(value.shape) != tuple(p.shape):
            raise ValueError(f"{own} has shape {tuple(value.shape)}, but the parameter has {tuple(p.shape)}")


def _number(value: Any) -> float:
    """Of a number or a tensor of one; NaN for others."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return math.nan


def _from_flashoptim(p: Any, saved: Mapping[str, Any], master_bytes: int | None, label: str) -> dict[str, Any]:
    """Saved state whose codes and errors of FlashOptim (arXiv 2602.23349) became fp32 and masters."""
    found: dict[str, Any] = {}
    for name, value in saved.items():
        slot, _, part = name.partition("::")
        if part == "quantized":
            scales = saved.get(f"{slot}::scales")
            groups = groups_of(p.numel())
            if is_dtensor(p) or value.shape != p.shape or scales is None or scales.numel() != groups:
                raise ValueError(f"{label}[{name!r}] must have the shape of the parameter, {tuple(p.shape)}, and"
                                 f" {groups} scales; shards are not converted")
            code = native.INT8_SOFTSIGN if value.dtype == torch.int8 else native.UINT8_SQRT
            value = value.contiguous()
            found[slot] = _converted(value, code, scales.to(torch.float16).contiguous(), value, native.FP32)
        elif name == "error_bits" and master_bytes is not None:
            # In parts of half a unit of the weight.
            if master_bytes == 4 and value.dtype in NARROW:
                value = value.view(torch.int16)
            weight = p.detach().float()
            info = torch.finfo(p.dtype)
            exponent = torch.frexp(weight.abs().clamp_min(info.smallest_normal)).exponent - 1
            half = exponent + int(math.log2(info.eps)) - 1
            most = 127 if master_bytes == 3 else 32767
            found[MASTER] = weight + torch.ldexp(value.to(p.device).float() / most, half)
        elif part != "scales":
            found[name] = value
    return found


def loaded(kind: int, p: Any, saved: Mapping[str, Any], master_bytes: int | None, label: str) -> dict[str, Any]:
    """A copy of saved state of a parameter, where it is: PyTorch's would have the dtype of 16-bit parameters."""
    if "error_bits" in saved or any(name.endswith("::quantized") for name in saved):
        saved = _from_flashoptim(p, saved, master_bytes, label)
    found: dict[str, Any] = {}
    floats = all_names(kind) - set(numbers_of(kind))
    for slot, value in saved.items():
        if slot == "step":
            found[slot] = counter(float(value))
        elif not isinstance(value, torch.Tensor):
            found[slot] = value
        elif slot in floats and value.dtype.is_floating_point:
            found[slot] = torch.empty_like(p, dtype=wide(p), requires_grad=False).copy_(value.detach())
        else:
            # The user's own, codes, and numbers per tensor.
            found[slot] = value.detach().to(p.device, copy=True)
    return found
