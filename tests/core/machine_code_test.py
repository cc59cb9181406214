#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Disassembles the object files of the kernels and looks for the prefetches of every optimizer's steps by blocks, and
with --vectors for arithmetic in vectors in every loop over elements.

  tests/core/machine_code_test.py [--vectors] OBJDUMP OBJECT...

Compilers may take a function that only prefetches for one without effect, and drop its calls. They leave a loop scalar
for a condition that they cannot put into a mask. Nothing but speed tells.
"""
import collections
import re
import subprocess
import sys

STEPS = re.compile(r"<.*\b(?:apply|apply_block|apply_span|moments|moments_span)<(gsc::optim::\w+(?:<[^>]*>)?)")
LOOPS = re.compile(r"<.*?\b((?:(?:update|move|moments|direction)_block|update_vectors)<gsc::optim::.*?)\(")
ARITHMETIC = re.compile(r"\tv(?:add|sub|mul|div|sqrt)(p|s)[sd]\b")


def main():
    vectors = sys.argv[1] == "--vectors"
    objdump, *kernels = sys.argv[1 + vectors:]
    text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", *kernels], check=True, capture_output=True,
                          text=True).stdout
    prefetches, packed, scalar = collections.Counter(), collections.Counter(), collections.Counter()
    formula = loop = None
    for line in text.splitlines():
        if line.endswith(">:"):
            found, loop = STEPS.search(line), LOOPS.search(line)
            formula, loop = found and found[1], loop and loop[1].replace("gsc::", "")
            if formula:
                prefetches[formula] += 0
        elif formula and "\tprefetch" in line:
            prefetches[formula] += 1
        elif loop and (found := ARITHMETIC.search(line)):
            (packed if found[1] == "p" else scalar)[loop] += 1
    for formula, count in sorted(prefetches.items()):
        print(f"{count:3} prefetches in steps of {formula}")
    for loop in sorted({*packed, *scalar}):
        print(f"{packed[loop]:4} operations of vectors, {scalar[loop]:4} of numbers in {loop}")
    if not prefetches:
        sys.exit("no step was found")
    if min(prefetches.values()) == 0:
        sys.exit("steps without prefetches")
    if vectors and (missed := sorted(loop for loop in scalar if not packed[loop])):
        sys.exit(f"not in vectors: {', '.join(missed)}")


if __name__ == "__main__":
    main()
