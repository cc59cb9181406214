# SPDX-License-Identifier: Apache-2.0
"""The scaler's policy: keyword arguments to the library's options and back, and the presets.

Ranges are the library's to check; here is only what words and flags are called in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._enums import PRESET
from ._fields import COUNTERS as COUNTERS
from ._fields import FLAGS, INTEGERS, LIMITS, REALS, SCALES, WORDS
from ._fields import Policy as Policy
from ._fields import Preset as Preset
from ._native import FLOAT32_MAX, flag, integer, native, real
from .messages import unexpected

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack
else:
    try:
        from typing import Unpack
    except ImportError:  # Python 3.10; its type hints then say less.
        Unpack = type("Unpack", (), {"__class_getitem__": classmethod(lambda _, item: item)})

#: Systems whose policy is reproduced step by step.
PRESETS: tuple[str, ...] = tuple(PRESET)


def apply(options: Any, arguments: dict[str, Any]) -> None:
    """Sets fields of the library's options. An unknown argument is a TypeError, as for a call."""
    for name, value in arguments.items():
        if name in LIMITS and value is None:
            setattr(options, name, 0)
        elif name in INTEGERS:
            setattr(options, name, integer(name, value, -(1 << 31), (1 << 31) - 1))
        elif name in REALS:
            setattr(options, name, real(name, value, FLOAT32_MAX) if name in SCALES else real(name, value))
        elif name in WORDS:
            setattr(options, name, WORDS[name].code(name, value))
        elif name in FLAGS:
            bit, opposite = FLAGS[name]
            options.flags = options.flags | bit if flag(name, value) != opposite else options.flags & ~bit
        elif name == "enabled" and isinstance(value, str) and value == "check":
            # The preset of that name.
            options.enabled, options.init_scale = 1, 1.0
            options.flags |= native.SCALER_STATIC_SCALE
        elif name == "enabled":
            options.enabled = int(flag(name, value))
        else:
            known = (*REALS, *INTEGERS, *WORDS, *FLAGS, "enabled")
            raise unexpected("GradScaler", name, known)


def describe(options: Any) -> dict[str, Any]:
    """The inverse of :func:`apply`."""
    found: dict[str, Any] = {name: getattr(options, name) for name in REALS + INTEGERS}
    found.update({name: found[name] or None for name in LIMITS})
    found.update({name: words.word(getattr(options, name)) for name, words in WORDS.items()})
    found.update({name: bool(options.flags & bit) != opposite for name, (bit, opposite) in FLAGS.items()})
    found["enabled"] = bool(options.enabled)
    return found


def of_preset(preset: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a scaler with a preset's policy, and `overrides`."""
    options = preset_options(preset)
    apply(options, overrides)
    return describe(options)


def preset_options(preset: str) -> Any:
    options = native.ScalerOptions()
    options.preset(PRESET.code("preset", preset))
    return options
