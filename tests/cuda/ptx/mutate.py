#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that the PTX tests can fail: drops each barrier and fence of the kernels in turn.

  mutate.py [--report FILE] EXECUTABLE...
  mutate.py --quick EXECUTABLE

EXECUTABLE is a cuda.ptx.<target>. Each source line with a barrier or fence is one mutant; it dies if a run with one of
the seeds 1 to 4, under strong or weak memory, fails. Exits with 1 if a mutant survives that is not in EXPECTED with a
reason, or if one dies that is. --report also writes the results as a Markdown table. --quick takes seconds: the two
barriers at the ticket of a grid's last block, which the test Ticket must notice, and that mutants.md has a row for each
mutant of this target (line numbers may differ).
"""
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
REPORT = pathlib.Path(__file__).with_name("mutants.md")
TIMEOUT = 900
SEEDS = ("1", "2", "3", "4")
# The tests that notice most mutants, in seconds; all tests run only for those that survive these.
FIRST = "Ticket*:All/Teams*:*Diagnos*:*Norm/*:*many_groups*"
# Source line's text -> why no test can notice that it is left out.
EXPECTED = {}


def run(executable, tests="*", **environment):
    """How one run ends: ("", "") if it passes, else the test that was running and what it says."""
    command = [executable, "--gtest_fail_fast", "--gtest_filter=" + tests]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT,
                                env={**os.environ, **environment})
    except subprocess.TimeoutExpired as stopped:
        return last_test((stopped.stdout or b"").decode()), "runs for ever"
    if result.returncode == 0:
        return "", ""
    for line in result.stderr.splitlines():
        if line.startswith("ptx: "):
            return last_test(result.stdout), shorten(line)
    return last_test(result.stdout), "other results than the CPU's"


def last_test(output):
    started = re.findall(r"^\[ RUN      \] (\S+)", output, flags=re.M)
    return started[-1] if started else "?"


def shorten(line):
    """What the machine says, without kernel, address and thread."""
    line = re.sub(r"^ptx: .*?: (?=race|deadlock|a |not |access|misaligned)", "", line)
    return re.sub(r": \d+ bytes at .*? in ", ", ", line)


def sites(executable):
    """The barriers and fences of the kernels: (source line, what it is), in the order of files and lines."""
    listing = subprocess.run([executable], env={**os.environ, "PTX_LIST": "1"}, capture_output=True, text=True,
                             check=True)
    rows = [site.rsplit(" ", 1) for site in listing.stdout.splitlines()]
    return sorted(rows, key=lambda row: (row[0].split(":")[0], int(row[0].split(":")[1])))


def text_of(place):
    """The source line itself."""
    file, number = place.rsplit(":", 1)
    return (ROOT / file).read_text().splitlines()[int(number) - 1].strip()


def nvcc_of(executable):
    """The version of the compiler that made the executable's PTX."""
    path = pathlib.Path(executable)
    ptx = path.parent / "ptx" / path.name.rsplit(".", 1)[-1] / "check.ptx"
    return re.search(r"release [\d.]+, V([\d.]+)", ptx.read_text())[1]


def missing_rows(executable):
    """Mutants of which the report has no row, as "file `text`"."""
    section = REPORT.read_text().partition(f"## compute_{executable.rsplit('.', 1)[-1]}\n")[2].partition("\n## ")[0]
    reported = collections.Counter(re.findall(r"^\| (\S+):\d+ \| (`.*?`) \|", section, flags=re.M))
    present = collections.Counter((place.rsplit(":", 1)[0], f"`{text_of(place)}`") for place, _ in sites(executable))
    return sorted(" ".join(row) for row in present - reported)


def quick(executable):
    missing = missing_rows(executable)
    if missing:
        sys.exit(f"{REPORT.name} lacks {', '.join(missing)}: run scripts/ptx mutants")
    at_ticket = [line for line, what in sites(executable) if what == "bar" and line.startswith("core/cuda/device.cuh:")]
    alive = run(executable, "Ticket*", PTX_SEED="2")[1]
    if alive:
        sys.exit("fails without a mutation: " + alive)
    for line in at_ticket[:2]:
        outcome = run(executable, "Ticket*", PTX_SEED="2", PTX_DROP=line)[1]
        if not outcome:
            sys.exit(f"{line}: the test passes without this barrier")
        print(f"{line}: {outcome}")


def kill(executable, place, what):
    """The first run that notices that the line is left out: (test, what it said, how memory was, seed), or None."""
    for tests in (FIRST, "*"):
        for seed in SEEDS:
            # Strong memory does as it is told without a fence.
            for weak in ("1",) if what == "membar" else ("0", "1"):
                test, outcome = run(executable, tests, PTX_DROP=place, PTX_SEED=seed, PTX_WEAK=weak)
                if outcome:
                    return test, outcome, "weak" if weak == "1" else "strong", seed
    return None


def main():
    arguments = sys.argv[1:]
    if len(arguments) == 2 and arguments[0] == "--quick":
        quick(arguments[1])
        return
    report = None
    if len(arguments) > 2 and arguments[0] == "--report":
        report, arguments = pathlib.Path(arguments[1]), arguments[2:]
    if not arguments or arguments[0].startswith("-"):
        sys.exit(__doc__)
    wrong = mutants = 0
    table = ["# Barriers and fences left out one by one", "",
             f"Written by `scripts/ptx mutants`, with nvcc {nvcc_of(arguments[0])}. A mutant dies if a test fails or "
             "the machine", "stops it; the run that did so is named.", ""]
    workers = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    for executable in arguments:
        target = executable.rsplit(".", 1)[-1]
        alive = next(filter(None, (run(executable, FIRST, PTX_SEED=SEEDS[0], PTX_WEAK=w)[1] for w in "01")), "")
        if alive:
            sys.exit(f"{executable} fails without a mutation: {alive}")
        table += [f"## compute_{target}", "", "| source line | left out | | noticed by | as | memory, seed |",
                  "|---|---|---|---|---|---|"]
        mutated = sites(executable)
        outcomes = workers.map(lambda site, executable=executable: kill(executable, *site), mutated)
        for (place, what), killed in zip(mutated, outcomes, strict=True):
            reason = EXPECTED.get(text_of(place))
            mutants += 1
            verdict = "dies" if killed else "lives"
            if bool(killed) == bool(reason):
                wrong += 1
                verdict += ", UNEXPECTED"
            test, outcome, memory, seed = killed or ("", reason or "", "", "")
            table.append(f"| {place} | `{text_of(place)}` | {verdict} | {test} | {outcome} | {memory} {seed} |")
            print(f"{target}  {place:<28} {what:<9} {verdict:<18} {test} {outcome}", flush=True)
        table.append("")
    table.append(f"{mutants} mutants, {wrong} not as expected.")
    print(table[-1])
    if report is not None:
        report.write_text("\n".join(table) + "\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
