#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a floor of core/ includes a floor above or beside it, if capi/ knows a backend, if more than one file asks
whether the build has CUDA, or if a number gets into a message by printf alone, which follows the locale. Usage:
floors_test.py <root of the sources>."""
import pathlib
import re
import sys

# What a folder may include, besides the public header. Of device/, capi/ needs two headers.
FLOORS = {
    "core/base": {"core/base"},
    "core/rules": {"core/rules"},
    "core/device": {"core/base", "core/rules", "core/device"},
    "core/cpu": {"core/base", "core/rules", "core/device", "core/cpu"},
    "core/cuda": {"core/base", "core/rules", "core/device", "core/cuda"},
    "core/objects": {"core/base", "core/rules", "core/device", "core/objects"},
    "capi": {"core/base", "core/objects", "core/device/registry.h", "core/device/misuse.h", "capi"},
}


def main():
    root = pathlib.Path(sys.argv[1])
    errors = []
    askers = []
    for folder, allowed in FLOORS.items():
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
    for error in errors:
        print("error:", error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
