# SPDX-License-Identifier: Apache-2.0
"""The library's messages in Python's words: fields of C structures become the arguments that they came from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import GradscalerError
from .trees import Leaves

_FIELDS = (
    (r"options\.flags has NESTEROV, which needs", "nesterov needs"),
    (r"options\.flags has both ZERO_GRADS and WRITE_GRADS", "zero_grads and write_grads exclude each other"),
    (r"options\.(momentum is [^:]*): whether group (\d+) has", r"\1: whether param group \2 has"),
    (r"options\.beta1\b", "betas[0]"),
    (r"options\.beta2\b", "betas[1]"),
    (r"\boptions\.", ""),
    (r"\.count is (-?\d+)", r" has \1 elements"),
    (r"\.dtype is", " has dtype"),
    (r"\.data is (0x[0-9a-f]+), which", r" is at \1, which"),
)


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 tensor``, ``2 tensors``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


@contextmanager
def named_errors(**arrays: Leaves) -> Iterator[None]:
    """Inside, errors of the library name arguments: what C calls ``tensors[1]`` is the entry of ``tensors=leaves``."""
    try:
        yield
    except GradscalerError as error:
        error.args = (_translate(str(error), arrays), *error.args[1:])
        raise


@contextmanager
def device_errors(device: str) -> Iterator[None]:
    """The same for the opening of a device, which Python names by one word."""
    try:
        yield
    except GradscalerError as error:
        text = re.sub(r"options\.device_(type|index) is [^,;]*", f"device is {device!r}", str(error))
        error.args = (_translate(text, {}), *error.args[1:])
        raise


def _translate(text: str, arrays: dict[str, Leaves]) -> str:
    for name, leaves in arrays.items():
        def label(found: re.Match[str], leaves: Leaves = leaves) -> str:
            index = int(found[1])
            return leaves.label(index) if index < len(leaves.paths) else found[0]

        text = re.sub(rf"\b{name}\[(\d+)\]", label, text)
    for pattern, replacement in _FIELDS:
        text = re.sub(pattern, replacement, text)
    return text
