#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that includes no header of an experiment sees nothing of one: no declaration, no macro and, but for the one
place where gradscaler.h points to them, no word.

Usage: stable_headers.py <folder of the headers> <C compiler> <C++ compiler>
"""
import pathlib
import re
import subprocess
import sys

include, *compilers = sys.argv[1:]
FOLDER = pathlib.Path(include) / "gradscaler"
WORD = re.compile(r"\w*(?:vulkan|gscx)\w*", re.I)
POINTER = "<gradscaler/vulkan.h>"
PROGRAMS = {"c99": ["gradscaler.h", "api.h", "loader.h"], "c++20": ["gradscaler.hpp"]}
problems = []


def seen(compiler, standard, headers):
    """The words of experiments in a program that includes the headers: declarations and macros, not names of files."""
    program = "".join(f"#include <gradscaler/{name}>\n" for name in headers)
    language = "c++" if "+" in standard else "c"
    command = [compiler, f"-std={standard}", "-x", language, "-E", "-P", "-dD", f"-I{include}", "-"]
    output = subprocess.run(command, input=program, check=True, capture_output=True, text=True).stdout
    return set(WORD.findall(output))


stable = [FOLDER / name for name in ("gradscaler.h", "api.h", "loader.h", "gradscaler.hpp")]
for path in [*stable, *sorted((FOLDER / "cpp").glob("*.hpp"))]:
    text = path.read_text(encoding="utf-8")
    if path.name == "gradscaler.h":
        if text.count(POINTER) != 1:
            problems.append(f"{path}: {POINTER} stands there {text.count(POINTER)} times")
        text = text.replace(POINTER, "")
    problems += [f"{path}: {word}" for word in WORD.findall(text)]

for (standard, headers), compiler in zip(PROGRAMS.items(), compilers, strict=True):
    problems += [f"{standard}: a program sees {word}" for word in sorted(seen(compiler, standard, headers))]
    if "gscx_context_create_vulkan" not in seen(compiler, standard, ["vulkan.h"]):
        problems.append(f"{standard}: vulkan.h declares nothing, so that this test sees nothing")

sys.exit("\n".join(problems) if problems else 0)
