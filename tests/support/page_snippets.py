#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every block of code on a page is code of a test: its lines stand in one of the files, with any indentation.

Usage: page_snippets.py <page> <file>...
"""
import pathlib
import re
import sys


def lines(text):
    return "\n".join(line.strip() for line in text.strip().splitlines())


page, *names = sys.argv[1:]
files = [lines(pathlib.Path(name).read_text(encoding="utf-8")) for name in names]
blocks = re.findall(r"^```(?:c|cpp|csharp|java|lua|python|rust|xml)\n(.*?)^```",
                    pathlib.Path(page).read_text(encoding="utf-8"), re.M | re.S)
missing = [block for block in blocks if not any(lines(block) in text for text in files)]
for block in missing:
    print(f"{page}: in no test:\n{block}")
sys.exit(bool(missing) or not blocks)
