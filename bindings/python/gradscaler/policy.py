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

# gen-api: tables gsc_scaler_options
# Arguments that are words.
_WORDS = {
    "hysteresis_refill": HYSTERESIS_REFILL,
    "growth_timing": GROWTH_TIMING,
    "floor_action": FLOOR_ACTION,
}
# 32-bit integers.
_INTEGERS = ("growth_interval", "hysteresis", "recovery_interval", "floor_patience", "history_capacity")
# Numbers.
_REALS = ("init_scale", "min_scale", "max_scale", "growth_factor", "backoff_factor", "overflow_tolerance",
          "recovery_threshold")
# Of these the fp32.
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
# gen-api: end

#: What a state of the scaler has beyond PyTorch's state dict.
# gen-api: counters gsc_scaler_state
COUNTERS = ("hysteresis_tracker", "overflows_since_rescale", "updates_since_rescale", "consecutive_skips",
"skips_at_floor", "updates", "skipped")
# gen-api: end

#: The presets, for type checkers.
Preset = Literal["torch", "apex", "apex_hysteresis", "megatron", "deepspeed", "tensorflow", "keras", "flax", "jmp",
                 "paddle", "mindspore", "fairseq", "oneflow", "colossalai"]


class Policy(TypedDict, total=False):
    """Options of :class:`gradscaler.GradScaler` beyond PyTorch's. Each has the default that is PyTorch's policy."""

    # gen-api: keywords gsc_scaler_options
    #: Floor of the scale; None: none. Default None. A scale that :attr:`gradscaler.GradScaler.set_scale` sets below it
    #: stays until it grows.
    min_scale: float | None
    #: Ceiling of the scale; None: none. Default None.
    max_scale: float | None
    #: Overflows until the scale backs off, >= 1. Default 1: each overflow.
    hysteresis: int
    #: When the count of overflows starts again: "on_growth", "on_clean_step" or "consecutive". Default "on_growth".
    hysteresis_refill: Literal["on_growth", "on_clean_step", "consecutive"]
    #: The clean step that grows: "at_interval", "one_later" or "first_one_later". Default "at_interval".
    growth_timing: Literal["at_interval", "one_later", "first_one_later"]
    #: Back off only if overflows / updates since the last rescale >= this, in [0, 1] (fairseq). Default 0.
    overflow_tolerance: float
    #: While the scale is below this, `recovery_interval` replaces `growth_interval` (NVIDIA Modulus); 0: never. Default
    #: 0.
    recovery_threshold: float
    #: See `recovery_threshold`; >= 1 if that is set. Default 0.
    recovery_interval: int
    #: What happens at the floor: "clamp", "report" or "error". Default "clamp".
    floor_action: Literal["clamp", "report", "error"]
    #: Consecutive skipped updates at the floor until it is reported, >= 1. Default 1.
    floor_patience: int
    #: Updates kept in the history ring, 0..2^20. Creation allocates 32 bytes of device memory for each. Default 16,
    #: which shows what led to a skip. To plot the scale, give the number of steps between two reads.
    history_capacity: int
    #: Grow only when the tracker equals the interval: PyTorch's exact rule. Default: also when it exceeds the interval.
    #: They differ if the interval is lowered below the tracker: with this flag the scale then never grows.
    grow_on_equal: bool
    #: False: store a grown scale even if it is inf (Keras 3, Megatron-LM, DeepSpeed). Default: keep the old scale.
    finite_guard: bool
    #: A backoff to `min_scale` or below keeps the old scale; the scale is then at its floor (fairseq).
    floor_exclusive: bool
    #: Round the factors to fp32 and multiply in fp32 (Megatron-LM, ColossalAI, Paddle, Flax, jmp, Keras 3). Default:
    #: multiply in fp64 and round the product (PyTorch). They differ only for factors that are not powers of two.
    fp32_products: bool
    # gen-api: end


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
