# SPDX-License-Identifier: Apache-2.0
"""The text of gradscaler.h for LuaJIT's ffi.cdef: without comments and preprocessor, numbers of macros as constants.
Part of scripts/gen-api."""
import pathlib
import re

from header import NOTE

CDEF = "bindings/lua/gradscaler_cdef.lua"


def make(header):
    constants = re.findall(r"^#define (GSC_\w+) \(?(-?(?:0x)?[0-9a-fA-F]+)u?\)?$", header, re.M)
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header, flags=re.S)
    text = re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.M)
    # What is left of `extern "C" { }`, for C++ only.
    text = re.sub(r'^extern "C" \{$|^\}$', "", text, flags=re.M)
    text = re.sub(r"\bGSC_API\s+", "", text)
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join([
        "-- SPDX-License-Identifier: Apache-2.0",
        f"-- The declarations of the library for ffi.cdef. {NOTE}",
        "return [[",
        *(f"static const int {name} = {value};" for name, value in constants),
        *lines,
        "]]",
    ]) + "\n"


def files(header, root):
    """{path: text}; none where `root` has no Lua."""
    return {CDEF: make(header)} if (pathlib.Path(root) / CDEF).parent.is_dir() else {}
