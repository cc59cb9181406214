#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The example on the first screen of the README is the marked part of examples/c/hello.c, which is built and run.

argv[1] is the source tree. Indentation and runs of spaces may differ, and lines may stand before and after.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])


def lines_of(text):
    return [" ".join(line.split()) for line in text.strip().splitlines()]


source = (ROOT / "examples/c/hello.c").read_text()
example = lines_of(source[source.index("/* README { */") + len("/* README { */"):source.index("/* README } */")])
if len(example) != 15:
    sys.exit(f"the example has {len(example)} lines, the README promises 15")
blocks = [lines_of(block) for block in re.findall(r"```c\n(.*?)```", (ROOT / "README.md").read_text(), re.S)]
if not any(block[i:i + 15] == example for block in blocks for i in range(len(block))):
    sys.exit(f"README.md has {len(blocks)} blocks of C, none of which is the marked part of examples/c/hello.c:\n\n"
             + "\n".join(example))
print("the README shows what examples/c/hello.c does")
