#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README's first example is the marked part of examples/c/hello.c, and the one for libtorch that of
examples/cpp/torch/digits.cpp. Both are built and run.

argv[1] is the source tree. Indentation and runs of spaces may differ, and lines may stand before and after.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])


def lines_of(text):
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def check(path, begin, end, language):
    source = (ROOT / path).read_text()
    example = lines_of(source[source.index(begin) + len(begin):source.index(end)])
    blocks = [lines_of(block) for block in
              re.findall(rf"```{re.escape(language)}\n(.*?)```", (ROOT / "README.md").read_text(), re.S)]
    size = len(example)
    if not any(block[i:i + size] == example for block in blocks for i in range(len(block))):
        sys.exit(f"README.md has {len(blocks)} blocks of {language}, none of which is the marked part of {path}:\n\n"
                 + "\n".join(example))
    return size


size = check("examples/c/hello.c", "/* README { */", "/* README } */", "c")
if size != 15:
    sys.exit(f"the example has {size} lines, the README promises 15")
check("examples/cpp/torch/digits.cpp", "// README {", "// README }", "cpp")
print("the README shows what the examples do")
