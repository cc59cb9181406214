# SPDX-License-Identifier: Apache-2.0
"""State of a parameter in state dicts: the marks of codes, checks before loading, and FlashOptim's format."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from .. import hyper
from .._enums import SLOTS
from .._native import native
from ..state_formats import (
    EARLIER,
    REMAINDER,
    SCALE,
    SCALES,
    SQUARES,
    code_in,
    groups_of,
    numbers_per_tensor,
    possible_dtypes,
)
from ._shards import is_dtensor
from ._state_formats import (
    CODES_SUFFIX,
    MASTER,
    NARROW_DTYPES,
    all_names,
    converted,
    dtype_name,
    full_dtype,
    scales_layout,
    slot_code,
    slot_name,
    step_counter,
)

# The values that a state dict has in the place of a slot in codes: their bits, and 16 more for squares. PyTorch
# flattens no words. Squares of an earlier version had 8 and 16, and nothing else in the state of a parameter tells its
# codes of 16 bits from those of now, nor others where torch.distributed.checkpoint has copied their scales as numbers.
# PyTorch leaves the number out where it unflattens a state dict; then it came by torch.distributed.checkpoint, which
# asks for CODES_VERSION.
_BITS = {native.FP8_E4M3: 8, native.UINT8_LOG: 24, native.UFP16_E6M10: 32}
_BITS_OF_NOW = (24, 32)  # for squares
_BITS_OF_CODES = {8: 8, 16: 16, 24: 8, 32: 16}


def with_code_bits(kind: int, entry: dict[str, Any]) -> dict[str, Any]:
    """State of a parameter as a state dict has it."""
    slots = [slot for slot in SLOTS[kind] if entry.get(slot + CODES_SUFFIX) is not None]
    return {**entry, **{slot: _BITS[slot_code(entry, slot, kind)] for slot in slots}}


def without_code_bits(kind: int, state_dict: Mapping[str, Any]) -> dict[Any, Any]:
    """The state in a state dict, as before :func:`with_code_bits`. ValueError if something has mixed two formats."""
    state = dict(state_dict["state"])
    for group in state_dict["param_groups"]:
        for key in group["params"]:
            if key in state:
                saved, label = state[key], f"state_dict['state'][{key!r}]"
                state[key] = _without_code_bits(kind, saved, label)
                _require_saved_format(kind, group, state[key], saved, label)
    return state


def _without_code_bits(kind: int, saved: Mapping[str, Any], label: str) -> dict[str, Any]:
    found = dict(saved)
    for slot in SLOTS[kind]:
        value, coded = saved.get(slot), slot + CODES_SUFFIX
        if coded in saved and isinstance(value, torch.Tensor):
            raise ValueError(f"{label}[{slot!r}] are numbers, and {coded!r} is there too; leave out one of them")
        if coded not in saved and type(value) is int and value in _BITS_OF_CODES:
            raise ValueError(f"{label}[{slot!r}] is {value}, for codes of {_BITS_OF_CODES[value]} bits:"
                             " torch.distributed.checkpoint copies numbers and converts no formats. Load it into an"
                             " optimizer with the `state`, `master` and betas that were saved, whose state_dict()"
                             " load_state_dict() converts, or save fp32_state_dict()")
        if coded in saved:
            found.pop(slot, None)
        elif slot + SCALE in saved and slot in saved:
            # Of an earlier version.
            found[coded] = found.pop(slot)
        if has_squares(kind, found, slot) and not _are_of_now(kind, found, slot, value):
            raise ValueError(f"{label}[{coded!r}] are {EARLIER}")
    return found


def _are_of_now(kind: int, entry: Mapping[str, Any], slot: str, saved: Any) -> bool:
    """Whether codes of squares are those of this version, by what was `saved` in the place of the slot."""
    if saved is not None:
        return type(saved) is int and saved in _BITS_OF_NOW
    scales = entry.get(slot + SCALE)
    return not isinstance(scales, torch.Tensor) or dtype_name(scales) == SCALES[slot_code(entry, slot, kind)]


def has_squares(kind: int, entry: Mapping[str, Any], slot: str) -> bool:
    """Returns whether a slot is there in codes of squares, of this version or an earlier one."""
    codes = entry.get(slot + CODES_SUFFIX)
    return isinstance(codes, torch.Tensor) and code_in(kind, slot, dtype_name(codes)) in SQUARES


def _require_saved_format(kind: int, group: Mapping[str, Any], saved: Mapping[str, Any], marked: Mapping[str, Any],
                          label: str) -> None:
    """ValueError if integers in the state of a parameter are not of the formats that its param group was saved with, or
    not the codes that `marked` says: torch.distributed.checkpoint has copied them into those of another format."""
    state, master = group.get("state", "fp32"), group.get("master")
    if state not in hyper.STATE or master not in hyper.MASTER:
        return
    codes = possible_dtypes(kind, state, master)
    for slot in (*SLOTS[kind], REMAINDER):
        name = slot_name(saved, slot)
        value: Any = saved.get(name)
        if slot not in codes or not isinstance(value, torch.Tensor) or (slot != REMAINDER and name == slot):
            continue
        code, bits = slot_code(saved, slot, kind), marked.get(slot)
        if code not in codes[slot] or (type(bits) is int and bits != _BITS.get(code)):
            raise ValueError(f"{label}[{name!r}] is {str(value.dtype).rpartition('.')[2]}, which is no format of"
                             f" state={state!r}, master={master!r} that its param group was saved with:"
                             " torch.distributed.checkpoint copies numbers and converts no formats. Load it into an"
                             " optimizer with these, whose state_dict() load_state_dict() converts")


def require_loadable(kind: int, p: Any, saved: Mapping[str, Any], label: str) -> None:
    """ValueError unless `saved`, state of a parameter, has its shape, and numbers where these belong."""
    names, numbers = all_names(kind), numbers_per_tensor(kind)
    slots = {name for name in names if not name.endswith(SCALE)}
    for slot, value in saved.items():
        own = f"{label}[{slot!r}]"
        if slot in ("step", "mu_product"):
            number = _number(value)
            if not 0.0 <= number <= 2.0**53 or (slot == "step" and number != int(number)):
                raise ValueError(f"{own} is {value!r}; it must be a {'count of steps' if slot == 'step' else 'number'}")
        if slot in names and value is not None and not isinstance(value, torch.Tensor):
            raise ValueError(f"{own} is {type(value).__name__}; it must be a tensor")
        if slot in names - slots and value is not None and is_dtensor(p) and tuple(value.shape) != scales_layout(p)[0]:
            raise ValueError(f"{own} has shape {tuple(value.shape)}, but here the shards have {scales_layout(p)[0]}:"
                             " their groups of 32 elements are others; save fp32_state_dict() to load it on any number"
                             " of ranks")
        if slot in numbers and value is not None:
            if value.numel() != numbers[slot]:
                raise ValueError(f"{own} has {value.numel()} numbers; it must have {numbers[slot]}")
        elif slot in slots and value is not None and tuple(value.shape) != tuple(p.shape):
            raise ValueError(f"{own} has shape {tuple(value.shape)}, but the parameter has {tuple(p.shape)}")


def _number(value: Any) -> float:
    """The value of a number or a tensor of one; NaN for others."""
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
            found[slot] = converted(value, code, scales.to(torch.float16).contiguous(), value, native.FP32)
        elif name == "error_bits" and master_bytes is not None:
            # In parts of half a unit of the weight.
            if master_bytes == 4 and value.dtype in NARROW_DTYPES:
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


def loaded_state(kind: int, p: Any, saved: Mapping[str, Any], master_bytes: int | None, label: str) -> dict[str, Any]:
    """A copy of saved state of a parameter, where it is: PyTorch's would have the dtype of 16-bit parameters."""
    if "error_bits" in saved or any(name.endswith("::quantized") for name in saved):
        saved = _from_flashoptim(p, saved, master_bytes, label)
    found: dict[str, Any] = {}
    floats = all_names(kind) - set(numbers_per_tensor(kind))
    for slot, value in saved.items():
        if slot == "step":
            found[slot] = step_counter(float(value))
        elif not isinstance(value, torch.Tensor):
            found[slot] = value
        elif slot in floats and value.dtype.is_floating_point:
            found[slot] = torch.empty_like(p, dtype=full_dtype(p), requires_grad=False).copy_(value.detach())
        else:
            # The user's own, codes, and numbers per tensor.
            found[slot] = value.detach().to(p.device, copy=True)
    return found
