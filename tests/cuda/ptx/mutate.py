#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves that the tests of the PTX can fail: leaves out each barrier and each fence of the kernels in turn.

  mutate.py EXECUTABLE [seed...]
  mutate.py --quick EXECUTABLE

EXECUTABLE is a cuda.ptx.<target>. Each source line with a barrier or fence is one mutant; it dies if a run under one of
the seeds (1 to 4 by default), with strong memory or with weak, fails. Exits with 1 if a mutant lives that is not in
EXPECTED with a reason, or if one dies that is. --quick takes seconds: the two barriers at the ticket of a grid's last
block, which the test called Ticket has to notice.
"""
import os
import subprocess
import sys

TIMEOUT = 600
# Source line's text -> why no test can notice that it is left out.
EXPECTED = {}


def run(executable, tests="*", **environment):
    """How one run ends: "" if it passes, else what it says."""
    command = [executable, "--gtest_brief=1", "--gtest_fail_fast", "--gtest_filter=" + tests]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT,
                                env={**os.environ, **environment})
    except subprocess.TimeoutExpired:
        return "runs for ever"
    if result.returncode == 0:
        return ""
    for line in (result.stderr + result.stdout).splitlines():
        if line.startswith("ptx: ") or "Failure" in line or "FAILED" in line:
            return line
    return f"exit status {result.returncode}"


def sites(executable):
    """The barriers and fences of the kernels: (source line, what it is), in the order of files and lines."""
    listing = subprocess.run([executable], env={**os.environ, "PTX_LIST": "1"}, capture_output=True, text=True,
                             check=True)
    rows = [site.rsplit(" ", 1) for site in listing.stdout.splitlines()]
    return sorted(rows, key=lambda row: (row[0].split(":")[0], int(row[0].split(":")[1])))


def quick(executable):
    at_ticket = [line for line, what in sites(executable) if what == "bar" and line.startswith("core/cuda/device.cuh:")]
    alive = run(executable, "Ticket*", PTX_SEED="2")
    if alive:
        sys.exit("fails without a mutation: " + alive)
    for line in at_ticket[:2]:
        outcome = run(executable, "Ticket*", PTX_SEED="2", PTX_DROP=line)
        if not outcome:
            sys.exit(f"{line}: the test passes without this barrier")
        print(f"{line}: {outcome}")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--quick" and len(sys.argv) == 3:
        quick(sys.argv[2])
        return
    executable, seeds = sys.argv[1], sys.argv[2:] or ["1", "2", "3", "4"]
    wrong = 0
    rows = []
    for line, what in sites(executable):
        outcome = ""
        for seed in seeds:
            for weak in ("1",) if what == "membar" else ("0", "1"):
                outcome = outcome or run(executable, PTX_DROP=line, PTX_SEED=seed, PTX_WEAK=weak)
        reason = EXPECTED.get(line)
        verdict = "dies" if outcome else "lives"
        if bool(outcome) == bool(reason):
            wrong += 1
            verdict += ", UNEXPECTED"
        rows.append(f"{line:<32} {what:<9} {verdict:<18} {outcome or reason or ''}")
        print(rows[-1], flush=True)
    print(f"{len(rows)} mutants, {wrong} not as expected")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
