#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every function of the C ABI is called in the C++ layer, which defines a function of the same name, and every
enumerator of its enumerations is used. So are those of experiments in <gradscaler/vulkan.hpp>.

argv[1] is the source tree. A method's name is the C function's without gsc_ and the object, another function's is
without gsc_ or gscx_. Left out are constructors and destructors, the initializers of options, the error that the
exception carries, the entry of the function table, which C++ has no use for, and constants that C++ callers use by
their C name: statuses, log levels, flag bits and reserved dtypes.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
INCLUDE = ROOT / "include/gradscaler"
C_NAMES = re.compile(r"GSC_(OK|ERROR_|LOG_|CONTEXT_|SCALER_|REPORT_|OPTIMIZER_|FP8_|API|VERSION_|ABI_VERSION)")
NAMELESS = re.compile(r"gsc_(\w+_(create|destroy|options_init)|error_get_last)")
OBJECT = re.compile(r"gscx_|gsc_((context|tensor_list|scaler|optimizer|ops)_)?")



def read(path):
    """A header's code without comments."""
    return re.sub(r"//[^\n]*", "", path.read_text())


interface = json.loads((ROOT / "bindings/api.json").read_text(encoding="utf-8"))
layer = "".join(read(path) for path in sorted((INCLUDE / "cpp").glob("*.hpp")))
functions = [line for line in (ROOT / "capi/functions.txt").read_text().splitlines() if line.startswith("gsc_")]
enumerators = [item["name"] for enum in interface["enums"] for item in enum["items"]]
if len(functions) < 72 or len(enumerators) < 60:
    sys.exit(f"read {len(functions)} functions and {len(enumerators)} enumerators; there are more")


def is_covered(function, layer):
    if not re.search(rf"\b{function}[(,]", layer):  # called, or passed to detail::read
        return False
    name = OBJECT.sub("", function)
    return NAMELESS.fullmatch(function) or re.search(rf"^ *(?!return)(\S+ )+\*?{name}\(", layer, re.M)


missing = [name for name in functions if not is_covered(name, layer)]
missing += [name for name in enumerators if not C_NAMES.match(name) and not re.search(rf"\b{name}\b", layer)]
experimental, own = interface["experimental"], read(INCLUDE / "vulkan.hpp")
missing += [function["name"] for function in experimental["functions"] if not is_covered(function["name"], own)]
missing += [item["name"] for enum in experimental["enums"] for item in enum["items"]
            if not re.search(rf"\b{item['name']}\b", own)]
if missing:
    sys.exit("not in the C++ layer: " + ", ".join(missing))
print(f"{len(functions)} functions, {len(enumerators)} enumerators")
