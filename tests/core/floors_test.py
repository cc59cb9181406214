#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a floor of core/ includes a floor above it or another backend, if capi/ knows a backend, if more than one
file asks whether the build has CUDA, or if a number gets into a message by printf alone, which follows the locale.
Usage: floors_test.py <root of the sources>. First it shows that it sees a backend that includes core/objects."""
import pathlib
import re
import sys
import tempfile

# The folders that a folder may include, in addition to the public header. capi/ may include three single headers.
FLOORS = {
    "core/base": {"core/base"},
    "core/rules": {"core/rules"},
    "core/device": {"core/base", "core/rules", "core/device"},
    "core/objects": {"core/base", "core/rules", "core/device", "core/objects"},
    "capi": {"core/base", "core/objects", "core/device/registry.h", "core/device/misuse.h",
             "core/rules/write_struct.h", "capi"},
}
# Every other folder of core/ is a backend.
BACKEND = {"core/base", "core/rules", "core/device"}


def folders_of(root):
    """{folder: what it may include}"""
    found = {f"core/{folder.name}" for folder in (root / "core").iterdir() if folder.is_dir()}
    return FLOORS | {folder: BACKEND | {folder} for folder in found - FLOORS.keys()}


def errors_of(root):
    errors = []
    askers = []
    for folder, allowed in folders_of(root).items():
        files = [f for f in (root / folder).rglob("*") if re.fullmatch(r"\.(c|h|cpp|hpp|cu|cuh)", f.suffix)]
        if not files:
            errors.append(f"{folder} has no sources")
        for file in files:
            text = file.read_text(encoding="utf-8")
            name = file.relative_to(root)
            if "GSC_HAVE_CUDA" in text:
                askers.append(str(name))
            if name.name != "decimal.h" and re.search(r"%[-+ #0]*[\d.*]*[aefg]\b", text, re.IGNORECASE):
                errors.append(f"{name} writes a number by printf; Decimal does it alike in every locale")
            for included in re.findall(r'^\s*#\s*include "((?:core|capi)/[^"]+)"', text, re.MULTILINE):
                if not any(included == place or included.startswith(place + "/") for place in allowed):
                    errors.append(f"{name} includes {included}")
    if askers != ["core/device/registry.cpp"]:
        errors.append(f"GSC_HAVE_CUDA is asked in {', '.join(askers) or 'no file'}; only core/device/registry.cpp may")
    return errors


def sees_a_new_backend():
    with tempfile.TemporaryDirectory() as folder:
        backend = pathlib.Path(folder) / "core/hip"
        backend.mkdir(parents=True)
        (backend / "check.cpp").write_text('#include "core/objects/scaler.h"\n#include "core/rules/check.h"\n')
        return [e for e in errors_of(pathlib.Path(folder)) if "hip" in e] == [
            "core/hip/check.cpp includes core/objects/scaler.h"]


def main():
    errors = errors_of(pathlib.Path(sys.argv[1]))
    if not sees_a_new_backend():
        errors.append("a new backend that includes core/objects passes")
    for error in errors:
        print("error:", error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
