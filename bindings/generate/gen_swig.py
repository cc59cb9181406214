# SPDX-License-Identifier: Apache-2.0
"""SWIG: getters as methods of the objects. Part of scripts/gen-api."""
import header

FOLDER = "bindings/swig"


def getters(handle):
    lines = []
    for getter in handle.getters:
        lines += [f"{getter.ctype} {getter.name}_() {{", f"  {getter.ctype} value = 0;",
                  f"  gsc_record({getter.function}($self, &value));", "  return value;", "}"]
    return lines


def files(text, root):
    """{path: text} of the files that SWIG needs; none where `root` does not have it."""
    return header.regions(text, root, FOLDER, {"getters": getters}) if (root / FOLDER).is_dir() else {}
