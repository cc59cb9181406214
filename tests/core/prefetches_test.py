#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Disassembles the object files of the kernels and looks for the prefetches of every optimizer's steps by blocks.

  tests/core/prefetches_test.py OBJDUMP OBJECT...

Compilers may take a function that only prefetches for one without effect, and drop its calls: nothing but speed tells.
"""
import collections
import re
import subprocess
import sys

STEPS = re.compile(r"<.*\b(?:apply|apply_block|apply_span|moments|moments_span)<(gsc::optim::\w+(?:<[^>]*>)?)")


def main():
    objdump, *kernels = sys.argv[1:]
    text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", *kernels], check=True, capture_output=True,
                          text=True).stdout
    prefetches = collections.Counter()
    formula = None
    for line in text.splitlines():
        if line.endswith(">:"):
            found = STEPS.search(line)
            formula = found and found[1]
            if formula:
                prefetches[formula] += 0
        elif formula and "\tprefetch" in line:
            prefetches[formula] += 1
    for formula, count in sorted(prefetches.items()):
        print(f"{count:3} in steps of {formula}")
    if not prefetches:
        sys.exit("no step was found")
    if min(prefetches.values()) == 0:
        sys.exit("steps without prefetches")


if __name__ == "__main__":
    main()
