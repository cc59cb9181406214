#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that names of C on the pages exist: every gsc_* and GSC_*, and in docs/reference/abi.md every name in
backticks with an underscore, must stand in the headers, in the library's sources, in the tests of the ABI or in what
all tests share.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ("include", "core", "capi", "tests/abi", "tests/support", "CMakeLists.txt")


def sources(name):
    path = ROOT / name
    return [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]


known = set()
for path in (p for name in SOURCES for p in sources(name)):
    known.update(re.findall(r"\w+", path.read_text(encoding="utf-8", errors="replace")))

pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
missing, count = [], 0
for page in pages:
    text = page.read_text(encoding="utf-8")
    names = set(re.findall(r"\b(?:gsc|GSC)_\w*[A-Za-z0-9]\b(?![*_])", text))
    if page == ROOT / "docs/reference/abi.md":
        names.update(re.findall(r"`([a-z]+(?:_[a-z0-9]+)+)`", text))
    count += len(names)
    missing += [f"{page.relative_to(ROOT)}: {name}" for name in sorted(names - known)]
if missing or count < 150:
    sys.exit("\n".join([f"read {count} names; not in the sources:", *missing]))
print(f"{count} names on {len(pages)} pages")
