# SPDX-License-Identifier: Apache-2.0
"""The scaler's policy: keyword arguments to the library's options and back, and the presets.

Ranges are the library's to check; here is only what words and flags are called in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ._enums import FLOOR_ACTION, GROWTH_TIMING, HYSTERESIS_REFILL, PRESET
from ._native import FLOAT32_MAX, flag, integer, native, real

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack
else:
    try:
        from typing import Unpack
    except ImportError:  # Python 3.10; its type hints then say less.
        Unpack = type("Unpack", (), {"__class_getitem__": classmethod(lambda _, item: item)})

#: Systems whose policy is reproduced step by step.
PRESETS: tuple[str, ...] = tuple(PRESET)

_WORDS = {
    "hysteresis_refill": HYSTERESIS_REFILL,
    "growth_timing": GROWTH_TIMING,
    "floor_action": FLOOR_ACTION,
}
_INTEGERS = ("growth_interval", "hysteresis", "recovery_interval", "floor_patience", "history_capacity")
_REALS = ("init_scale", "min_scale", "max_scale", "growth_factor", "backoff_factor", "overflow_tolerance",
          "recovery_threshold")
# Of these the float32.
_SCALES = ("init_scale", "min_scale", "max_scale", "recovery_threshold")
# Of these the ones that may be None, the library's 0.
_LIMITS = ("min_scale", "max_scale")
# By argument: the flag, and whether the argument is its opposite.
_FLAGS = {
    "grow_on_equal": (native.SCALER_GROW_ON_EQUAL, False),
    "finite_guard": (native.SCALER_NO_FINITE_GUARD, True),
    "floor_exclusive": (native.SCALER_FLOOR_EXCLUSIVE, False),
    "fp32_products": (native.SCALER_FP32_PRODUCTS, False),
}


#: The same, for type checkers.
Preset = Literal["torch", "apex", "apex_hysteresis", "megatron", "deepspeed", "tensorflow", "keras", "flax", "jmp",
                 "paddle", "mindspore", "fairseq", "oneflow", "colossalai"]


class Policy(TypedDict, total=False):
    """Options of :class:`gradscaler.GradScaler` beyond PyTorch's. Each has the default that is PyTorch's policy."""

    #: The scale is not lowered below this; None: no floor.
    min_scale: float | None
    #: The scale is not raised above this; None: no ceiling.
    max_scale: float | None
    #: Back off at this many overflows.
    hysteresis: int
    #: When that counter is filled up again: ``"on_growth"``, ``"on_clean_step"`` or ``"consecutive"``.
    hysteresis_refill: Literal["on_growth", "on_clean_step", "consecutive"]
    #: ``"at_interval"``, ``"one_later"`` or ``"first_one_later"``.
    growth_timing: Literal["at_interval", "one_later", "first_one_later"]
    #: Back off only at this rate of overflows since the last rescale.
    overflow_tolerance: float
    #: Below this scale `recovery_interval` replaces `growth_interval`.
    recovery_threshold: float
    recovery_interval: int
    #: At `min_scale`: ``"clamp"``, ``"report"`` or ``"error"``.
    floor_action: Literal["clamp", "report", "error"]
    #: Skipped updates in a row at the floor before it is reported.
    floor_patience: int
    #: Updates kept in the history.
    history_capacity: int
    #: Grow only when the tracker equals the interval, PyTorch's exact rule.
    grow_on_equal: bool
    #: Keep the old scale where the grown one would be inf.
    finite_guard: bool
    #: A backoff to `min_scale` or below keeps the old scale.
    floor_exclusive: bool
    #: Multiply scales in fp32.
    fp32_products: bool


def apply(options: Any, arguments: dict[str, Any]) -> None:
    """Sets fields of the library's options. An unknown argument is a TypeError, as for a call."""
    for name, value in arguments.items():
        if name in _INTEGERS:
            setattr(options, name, integer(name, value, -(1 << 31), (1 << 31) - 1))
        elif name in _LIMITS and value is None:
            setattr(options, name, 0.0)
        elif name in _REALS:
            setattr(options, name, real(name, value, FLOAT32_MAX) if name in _SCALES else real(name, value))
        elif name in _WORDS:
            setattr(options, name, _WORDS[name].code(name, value))
        elif name in _FLAGS:
            bit, opposite = _FLAGS[name]
            options.flags = options.flags | bit if flag(name, value) != opposite else options.flags & ~bit
        elif name == "enabled":
            options.enabled = int(flag(name, value))
        else:
            raise TypeError(f"GradScaler got an unexpected keyword argument '{name}'")


def describe(options: Any) -> dict[str, Any]:
    """The inverse of :func:`apply`."""
    found: dict[str, Any] = {name: getattr(options, name) for name in _REALS + _INTEGERS}
    found.update({name: found[name] or None for name in _LIMITS})
    found.update({name: words.word(getattr(options, name)) for name, words in _WORDS.items()})
    found.update({name: bool(options.flags & bit) != opposite for name, (bit, opposite) in _FLAGS.items()})
    found["enabled"] = bool(options.enabled)
    return found


def preset_options(preset: str) -> Any:
    """The library's options of a preset."""
    options = native.ScalerOptions()
    options.preset(PRESET.code("preset", preset))
    return options
