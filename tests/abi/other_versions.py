#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The public headers as another version of the library might have them: other_versions.py older|newer INCLUDE OUT.

Copies INCLUDE/gradscaler to OUT/gradscaler. In `older` every struct with struct_size lacks its last 8 bytes, a field or
two; in `newer` it has one more field, int64_t later. Initializers lose or get the same values. The C++ layer loses its
lines about options that are gone. Stops if the header is not written as expected, so that no struct is missed.
"""
import pathlib
import re
import sys

STRUCT = re.compile(r"^(?:typedef )?struct (gsc_\w+) \{\n(  uint32_t struct_size;\n.*?)^\}", re.M | re.S)
FIELD = re.compile(r"^  ([^\s/*][^;/]*?)(\w+)(?:\[\w+\])?;\n", re.M)
FOUR_BYTES = ("int32_t ", "uint32_t ", "float ", "gsc_status ")
INIT = re.compile(r"\{[\s\\]*(?:\(uint32_t\))?sizeof\((gsc_\w+)\)[^{}]*?(?=[\s\\]*\})")


class Version:
    def __init__(self, way):
        self.is_older, self.changed, self.gone = way == "older", {}, set()  # changed: {struct: fields}

    def struct(self, match):
        name, body = match[1], match[2]
        code = re.sub(r"/\*.*?\*/", lambda comment: re.sub(r"[^\n]", " ", comment[0]), body, flags=re.S)
        fields = list(FIELD.finditer(code))
        if code.count(";") != len(fields):
            sys.exit(f"other_versions: {name} has a field that is not on a line of its own")
        count = self.changed[name] = 2 if self.is_older and fields[-1][1] in FOUR_BYTES else 1
        changed = body + "  int64_t later;\n"
        if self.is_older:
            changed = body[:fields[-count].start()]
            if name.endswith("_options"):
                self.gone |= {field[2] for field in fields[-count:]}
        return match[0].replace(body, changed)

    def init(self, match):
        if self.is_older:
            return match[0].rsplit(",", self.changed[match[1]])[0]
        return match[0] + ", 0"

    def header(self, text):
        sized = text.count("\n  uint32_t struct_size;\n"), text.count("(uint32_t)sizeof(gsc_")
        text = STRUCT.sub(self.struct, text)
        text, inits = INIT.subn(self.init, text)
        if (len(self.changed), inits) != sized:
            sys.exit("other_versions: a struct with struct_size, or an _INIT macro, is not written as the others are")
        return text

    def layer(self, text):
        """Its structs of options come before its classes."""
        structs, *classes = re.split(r"^(?=class )", INIT.sub(self.init, text), maxsplit=1, flags=re.M)
        if self.gone:
            structs = re.sub(rf"^ .*\b(?:{'|'.join(sorted(self.gone))})\b.*;\n", "", structs, flags=re.M)
        return structs + "".join(classes)


def main():
    way, include, out = sys.argv[1:]
    version, root = Version(way), pathlib.Path(include)
    paths = sorted(root.glob("gradscaler/**/*.h*"), key=lambda path: path.name != "gradscaler.h")
    for path in paths:
        text = path.read_text()
        if path.name == "gradscaler.h":
            text = version.header(text)
        elif path.parent.name == "cpp" and path.name != "enums.hpp":
            text = version.layer(text)
        target = pathlib.Path(out) / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_text() != text:
            target.write_text(text)


if __name__ == "__main__":
    main()
