# SPDX-License-Identifier: Apache-2.0
"""Hyper-parameters: keyword arguments to the library's options and back."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_float
from typing import Any

from . import _fields
from ._enums import SLOT_NEEDS
from ._native import flag, integer, native, real

#: Options that are flags. They are fixed when an optimizer is made.
FLAGS = _fields.OPTIMIZER_FLAGS
#: The words of `state` and `master`.
STATE = {"fp32": native.STATE_FULL, "16bit": native.STATE_BITS16, "8bit": native.STATE_BITS8}
MASTER = {None: native.MASTER_NONE, "split": native.MASTER_SPLIT16, "split24": native.MASTER_SPLIT8,
          "stochastic": native.MASTER_STOCHASTIC}
#: The flags with which a step writes gradients.
WRITING = native.OPTIMIZER_ZERO_GRADS | native.OPTIMIZER_WRITE_GRADS


def read(options: Any, key: str) -> Any:
    if key == "betas":
        return (options.beta1, options.beta2)
    if key in FLAGS:
        return bool(options.flags & FLAGS[key])
    return getattr(options, key)


def write(options: Any, key: str, value: Any) -> None:
    """Sets a hyper-parameter. TypeError and ValueError name it; ranges are the library's to check."""
    if key == "betas":
        try:
            beta1, beta2 = value
        except (TypeError, ValueError):
            raise ValueError(f"betas is {value!r}; it must be two numbers") from None
        options.beta1, options.beta2 = real("betas[0]", beta1), real("betas[1]", beta2)
    elif key in FLAGS:
        bit = FLAGS[key]
        options.flags = options.flags | bit if flag(key, value) else options.flags & ~bit
    else:
        counts = isinstance(getattr(options, key), int)
        setattr(options, key, integer(key, value, 0, 2**53) if counts else real(key, value))


def apply(options: Any, arguments: Mapping[str, Any]) -> None:
    for key, value in arguments.items():
        write(options, key, value)


def format_code(argument: str, value: object, words: Mapping[Any, int]) -> int:
    """The library's number of a word of STATE or MASTER; ValueError naming the argument for another."""
    if not isinstance(value, (str, type(None))) or value not in words:
        raise ValueError(f"{argument} is {value!r}; it must be one of {', '.join(map(repr, words))}")
    return words[value]


def flags_of(group: Mapping[str, Any]) -> int:
    """The flags that a param group of PyTorch sets."""
    return sum(bit for name, bit in FLAGS.items() if group.get(name))


def has_slot(kind: int, slot: str, momentum: float, flags: int) -> bool:
    """Returns whether an optimizer with these options keeps a state slot of its kind."""
    needed = SLOT_NEEDS.get(kind, {}).get(slot, 0)
    return bool(momentum) if needed is None else not needed & ~flags


def in_range(kind: int, key: str, value: Any) -> bool:
    """Returns whether the library takes this value of an option; True for what is no number with a range."""
    ends = _fields.NARROWER_RANGES.get(kind, {}).get(key) or _fields.RANGES.get(key)
    if ends is None:
        return True
    low, high, has_low, has_high = ends
    return bool((low <= value if has_low else low < value) and (value <= high if has_high else value < high))


def momentum_product(beta1: float, momentum_decay: float, steps: int) -> float:
    """NAdam's mu_product after so many steps, rounded to float32 at each as PyTorch's."""
    product = 1.0
    for step in range(1, steps + 1):
        product = c_float(product * c_float(beta1 * (1.0 - 0.5 * 0.96 ** (step * momentum_decay))).value).value
        if not product:
            break
    return product
