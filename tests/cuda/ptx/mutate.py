#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that the PTX tests can fail: drops each barrier and fence of the kernels in turn.

  mutate.py [--report FILE] EXECUTABLE...
  mutate.py --quick EXECUTABLE

EXECUTABLE is a cuda.ptx.<target>. Each source line with a barrier or fence is one mutant for every kernel that it is
compiled into, all instances of a template together; it dies if a run with one of the seeds 1 to 4, under strong or weak
memory, fails. The run that noticed it last time, according to mutants.md, comes first. Exits with 1 if a mutant
survives that is not in EXPECTED with a reason, or if one dies that is. --report also writes the results as a Markdown
table. --quick takes seconds: the two barriers at the ticket of a grid's last block, which the test Ticket must notice,
and that mutants.md has a row for each mutant of this target.
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
# Tests that reach a kernel often, in seconds. All tests run only for mutants that survive these without a reason.
FIRST = {
    "apply_coded_kernel": "*8bit*:*16bit*",
    "apply_kernel": "All/Teams*:*many_groups*",
    "check_kernel": "Ticket*:All/Teams*",
    "diagnose_kernel": "*Diagnos*",
    "moments_coded_kernel": "*lamb_8bit*:*lamb_16bit*",
    "moments_kernel": "All/Teams*lamb:*groups_lamb",
    "norm_kernel": "*Norm/*",
}
# Kernel, source line and the next -> why no test can notice that it is left out.
NOTHING_SHARED = ("the last block of a step reads nothing that other blocks of the launch write, and they have used "
                  "what it writes before they take a ticket")
LANES_MEET = ("the shuffles of largest_of_group bring the lanes together before a scale is written; the language does "
              "not order memory by them, so the barrier stays")
EXPECTED = {
    **{(kernel, line): reason for kernel in ("apply_kernel", "apply_coded_kernel") for line, reason in {
        "__threadfence(); last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;": NOTHING_SHARED,
        "__threadfence(); }": NOTHING_SHARED,
        "__syncthreads(); if (threadIdx.x == 0) {":
            "what the last block of a step writes, the others have read before the barrier after fill_group_table, or, "
            "if the step is skipped, do not use",
    }.items()},
    **{(kernel, "__syncwarp();  // every lane of a group has read its scale, which one lane writes "
                "for_slots<F>([&]<int S>() { encode<S>(a, i, valid, (random >> S & 1) != 0, bits); });"): LANES_MEET
       for kernel in ("apply_coded_kernel", "moments_coded_kernel")},
}


def run(executable, tests="*", **environment):
    """The end of one run: ("", "") if it passes, else the test that was running and its message."""
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
            return last_test(result.stdout), line
    return last_test(result.stdout), "other results than the CPU's"


def last_test(output):
    started = re.findall(r"^\[ RUN      \] (\S+)", output, flags=re.M)
    return started[-1] if started else "?"


def sites(executable):
    """The barriers and fences: (source line, instruction, kernel), in the order of files and lines."""
    listing = subprocess.run([executable], env={**os.environ, "PTX_LIST": "1"}, capture_output=True, text=True,
                             check=True)
    rows = [site.split(" ") for site in listing.stdout.splitlines()]
    return sorted(rows, key=lambda row: (row[0].split(":")[0], int(row[0].split(":")[1]), row[2]))


def file_of(place):
    return place.partition(":")[0].removeprefix("core/cuda/")


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
    """Mutants of which the report has no row, as "file `text` kernel"."""
    heading = rf"^## .*\bcompute_{executable.rsplit('.', 1)[-1]}\b.*$"
    section = re.split(heading, REPORT.read_text(), maxsplit=1, flags=re.M)[1].partition("\n## ")[0]
    reported = collections.Counter(re.findall(r"^\| (\S+) \| (`.*?`) \| (\w+) \|", section, flags=re.M))
    present = collections.Counter((file_of(place), f"`{text_of(place)}`", kernel)
                                  for place, _, kernel in sites(executable))
    return sorted(" ".join(row) for row in present - reported)


def reason_for(place, kernel):
    """The reason for which this mutant lives, or None."""
    file, number = place.rsplit(":", 1)
    lines = f"{text_of(place)} {text_of(f'{file}:{int(number) + 1}')}"
    return EXPECTED.get((kernel, lines))


def quick(executable):
    missing = missing_rows(executable)
    if missing:
        sys.exit(f"{REPORT.name} lacks {', '.join(missing)}: run scripts/ptx mutants")
    at_ticket = [line for line, what, kernel in sites(executable)
                 if (what, kernel) == ("bar", "check_kernel") and line.startswith("core/cuda/device.cuh:")]
    for seed in SEEDS:
        alive = run(executable, "Ticket*", PTX_SEED=seed)[1]
        if alive:
            sys.exit(f"fails with seed {seed} without a mutation: {alive}")
    for line in at_ticket[:2]:
        outcomes = (run(executable, "Ticket*", PTX_SEED=seed, PTX_DROP=line)[1] for seed in SEEDS)
        outcome = next(filter(None, outcomes), "")
        if not outcome:
            sys.exit(f"{line}: the test passes without this barrier")
        print(f"{line}: {outcome}")


def noticed_before(place, kernel):
    """The runs that noticed this mutant according to the report: (test, how memory was, seed)."""
    row = re.escape(f"| {file_of(place)} | `{text_of(place)}` | {kernel} | ")
    rows = rf"^{row}(\S+) \| (strong|weak) (\d+) \|$"
    return list(dict.fromkeys(re.findall(rows, REPORT.read_text(), flags=re.M)))


def runs_for(place, what, kernel):
    """The runs that may notice the mutant, the most promising first: (tests, how memory is, seed)."""
    yield from noticed_before(place, kernel)
    for tests in (FIRST[kernel],) if reason_for(place, kernel) else (FIRST[kernel], "*"):
        for seed in SEEDS:
            # Strong memory does as it is told without a fence.
            for memory in ("weak",) if what == "membar" else ("strong", "weak"):
                yield tests, memory, seed


def kill(executable, place, what, kernel):
    """The first run that notices the mutant: (test, what it said, how memory was, seed), or None."""
    for tests, memory, seed in runs_for(place, what, kernel):
        test, outcome = run(executable, tests, PTX_DROP=f"{place} {what} {kernel}", PTX_SEED=seed,
                            PTX_WEAK="1" if memory == "weak" else "0")
        if outcome:
            return test, outcome, memory, seed
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
    targets = {}  # by their rows: those with the same rows share a table
    table = ["# Barriers and fences left out one by one", "",
             f"Written by `scripts/ptx mutants`, with nvcc {nvcc_of(arguments[0])}. Each row names the first run in",
             "which a test fails or the machine stops, or none for the reason in EXPECTED of mutate.py. A kernel",
             "stands for all instances of its template.", ""]
    workers = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    for executable in arguments:
        target = executable.rsplit(".", 1)[-1]
        tests = ":".join(FIRST.values())
        alive = next(filter(None, (run(executable, tests, PTX_SEED=SEEDS[0], PTX_WEAK=w)[1] for w in "01")), "")
        if alive:
            sys.exit(f"{executable} fails without a mutation: {alive}")
        rows = []
        mutated = sites(executable)
        outcomes = workers.map(lambda site, executable=executable: kill(executable, *site), mutated)
        for (place, what, kernel), killed in zip(mutated, outcomes, strict=True):
            reason = reason_for(place, kernel)
            mutants += 1
            verdict = "dies" if killed else "lives"
            if bool(killed) == bool(reason):
                wrong += 1
                verdict += ", UNEXPECTED"
            test, outcome, memory, seed = killed or ("", reason or "", "", "")
            rows.append(f"| {file_of(place)} | `{text_of(place)}` | {kernel} |"
                        + (f" {test} | {memory} {seed} |" if killed else " | |"))
            print(f"{target}  {place:<28} {what:<9} {kernel:<16} {verdict:<18} {test} {outcome}", flush=True)
        targets.setdefault(tuple(rows), []).append(f"compute_{target}")
    for rows, names in targets.items():
        table += [f"## {', '.join(names)}", "", "| file in core/cuda | left out | of | noticed by | memory, seed |",
                  "|---|---|---|---|---|", *rows, ""]
    table.append(f"{mutants} mutants, {wrong} not as expected.")
    print(table[-1])
    if report is not None:
        report.write_text("\n".join(table) + "\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
