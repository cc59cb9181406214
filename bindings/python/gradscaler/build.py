# SPDX-License-Identifier: Apache-2.0
"""The paths of the C library and its headers, for code that builds on them: C, C++, Rust, JAX custom calls."""

from __future__ import annotations

from pathlib import Path

from . import _gradscaler as _module  # type: ignore[attr-defined]
from ._native import native

#: What is compiled lies together; in an editable install the sources lie elsewhere.
PACKAGE = Path(_module.__file__).resolve().parent


def get_include() -> str:
    """The directory to put on the include path; it has ``gradscaler/gradscaler.h``."""
    header = PACKAGE / "include" / "gradscaler" / "gradscaler.h"
    if not header.exists():
        raise FileNotFoundError(f"no {header}")
    return str(header.parent.parent)


def get_library() -> str:
    """The shared library that this package uses, to link with or to load by ``dlopen``."""
    names = (f"lib/libgradscaler.so.{native.ABI_VERSION}", f"lib/libgradscaler.{native.ABI_VERSION}.dylib",
             "gradscaler.dll")
    for name in names:
        if (PACKAGE / name).exists():
            return str(PACKAGE / name)
    raise FileNotFoundError(f"no {names[0]} in {PACKAGE}")


def build_info() -> str:
    """One line for bug reports: version, ABI, compiler, instruction sets, CUDA architectures."""
    return str(native.build_info())
