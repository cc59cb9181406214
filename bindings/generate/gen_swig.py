# SPDX-License-Identifier: Apache-2.0
"""SWIG: getters as methods of the objects. Part of scripts/gen-api."""
import re

from api import regions

FOLDER = "bindings/swig"


def getters(handle):
    return [f"GSC_VALUE({getter.ctype}, {getter.name}_(), {getter.function}($self, &value))"
            for getter in handle.getters]


def expanded(interface):
    """An interface file's text with GSC_VALUE written out, for tests that read its methods."""
    return re.sub(r"GSC_VALUE\((\w+), (\w+\([^)]*\)),\s+(.*)\)$", r"\1 \2 { \3; }", interface, flags=re.M)


def files(api, root):
    """{path: text} of the files that SWIG needs."""
    return regions(api, root, FOLDER, {"getters": getters})
