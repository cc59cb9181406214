#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the results of a benchmark run readable.

  benchmarks/table.py RAW.json [--runs RUN.json...] [--peers PEERS.json...] [--into DIR] [--tables]

RAW.json is the output of gradscaler_bench, or a cpu.json made of it. RUN.json are more runs of some of its
benchmarks; the tables show their medians. PEERS.json is the output of torch_tail.py, one for each run. The script
prints the comparisons and whether the goals are met, or with --tables all tables in Markdown. It writes cpu.json (the
numbers of all runs, see records.py) into DIR. `--slug` only prints a name for this machine's processor, for DIR;
`--filter` only prints which benchmarks are compared, for --benchmark_filter.
"""
import argparse
import json
import pathlib
import platform
import re
import statistics
import sys

import records

COPY = "vs_copy"
CACHED_LOG2 = 20  # arrays of so many bytes fit in second-level caches
OPERATIONS = ("unscale", "scale", "clip_norm", "clip_value", "cast", "axpby")  # element by element
LAYOUTS = ("fp32", "fp16_master", "bf16_master")
# The benchmarks that are compared, without those in cache, which one run shows well enough.
COMPARED = (f"^(huge/)?(check|zero|diagnose|histogram|{'|'.join(OPERATIONS)}|step/adamw/({'|'.join(LAYOUTS)}))/"
                ".*log2_bytes:28/|^model/10*x64/")


def medians(runs):
    """Of every number that all runs have; the rest as in the first."""
    common = {k: [run[k] for run in runs] for k in runs[0] if all(k in run for run in runs)}
    return {k: statistics.median(v) if isinstance(v[0], float) else v[0] for k, v in common.items()}


class Row:
    """One benchmark: check/fp16 at 1 thread and 2^28 bytes with its counters, the medians of its runs."""

    def __init__(self, runs):
        raw = medians(runs)
        self.raw, self.runs = raw, runs
        self.key, self.threads, self.log2 = records.canonical(raw["name"])
        self.error = next((run.get("error_message") for run in runs if run.get("error_occurred")), None)

    def __getitem__(self, counter):
        return self.raw[counter]


def grouped(runs, key):
    groups = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return list(groups.values())


class Results:
    def __init__(self, raw, peers):
        self.context = raw["context"]
        self.peers = peers or raw.get("peers")
        self.cases = [medians(runs) | {"runs": runs} for runs in grouped(
            self.peers["cases"], lambda case: (case["model"], case["threads"]))] if self.peers else []
        self.raw = raw
        self.all = [Row(runs) for runs in grouped(raw["benchmarks"], lambda run: records.canonical(run["name"]))]
        self.left_out = [r for r in self.all if r.error]
        self.rows = [r for r in self.all if not r.error]
        self.sizes = sorted({r.log2 for r in self.rows if r.log2})
        self.threads = sorted({r.threads for r in self.rows})

    def find(self, key, threads, log2=None):
        return next((r for r in self.rows if (r.key, r.threads, r.log2) == (key, threads, log2)), None)

    def keys(self, first):
        return list(dict.fromkeys(r.key for r in self.rows if r.key.split("/")[0] == first))


def size_text(log2):
    return f"{2 ** (log2 % 10)} {['B', 'KiB', 'MiB', 'GiB'][log2 // 10]}"


def time_text(us):
    for limit, factor, unit in ((1, 1000, "ns"), (1000, 1, "us"), (1e6, 1e-3, "ms")):
        if us < limit:
            return f"{us * factor:.3g} {unit}"
    return f"{us * 1e-6:.3g} s"


def cells(*values):
    return "| " + " | ".join(str(v) for v in values) + " |"


def table(head, rows):
    return [cells(*head), cells("---", *["---:"] * (len(head) - 1))] + [cells(*r) for r in rows] + [""]


AT_LIMIT = 0.9  # of a measured limit: what is left may be noise
TRAFFIC = "bare loop of its traffic"  # the machine's limit
ARITHMETIC = "the same call in cache"  # the code's limit on this machine
PER_TENSOR = "what a tensor adds in cache"  # likewise, for many small ones


class Comparison:
    """The speed of some benchmarks over that of a reference. It is a goal if it has an aim."""

    def __init__(self, text, aim):
        self.text, self.aim = text, aim
        self.measured = []  # (what, value)
        self.spans = {}  # what: the least and the greatest of several runs
        self.limits = {}  # what: (name of the limit, the value that a call as fast as the limit would have)

    def add(self, what, value, runs, limits):
        """value: the median of runs. limits: name to value. The lowest holds."""
        self.measured.append((what, value))
        if len(runs) > 1:
            self.spans[what] = f" ({min(runs):.2f} to {max(runs):.2f})"
        if limits:
            self.limits[what] = min(limits.items(), key=lambda limit: limit[1])

    def cause_of_miss(self, what, value):
        """The limit that explains a miss, being below what is asked for and reached by the call; else None."""
        name, limit = self.limits.get(what, (None, 0))
        return name if limit < self.aim and value >= AT_LIMIT * limit else None

    def lines(self):
        """One line a measurement, with its limit, and of a goal `met` or `missed`."""
        for what, value in self.measured:
            name, limit = self.limits.get(what, ("", 0))
            verdict = "" if self.aim is None else f">= {self.aim:g}: {'met' if value >= self.aim else 'missed'}"
            yield (self.text, what, f"{value:.2f}" + self.spans.get(what, ""), verdict,
                   f"{limit:.2f} ({name})" if name else "", f"{value / limit:.2f}" if name else "")


def limits_of(results, key, threads, row, reference):
    """The limits of a call, as ratios to its goal's reference: a bare loop with the same reads and writes, and the
    call itself on arrays that fit in a second-level cache, where only its arithmetic counts."""
    measured = row[reference + "_GBps"]
    limits = {}
    if "loop_GBps" in row.raw and reference != "loop":
        limits[TRAFFIC] = row["loop_GBps"] / measured
    cached = [found["GBps"] for size in results.sizes if size <= CACHED_LOG2
              for found in [results.find(key.removeprefix("huge/"), threads, size)] if found]
    if cached:
        limits[ARITHMETIC] = max(cached) / measured
    return limits


def limits_of_small(results, key, threads, row):
    """The flat tensor's time, and what each small one adds where a tenth of them are in the second-level cache of one
    thread."""
    tenth = results.find(key.replace("10000", "1000"), 1)
    if not tenth:
        return {}
    return {PER_TENSOR: row["flat_us"] / (row["flat_us"] + 10 / threads * (tenth["us"] - tenth["flat_us"]))}


def tail_at_limit(results, case):
    """Seconds of a tail beyond the caches, if its check ran at the best plain read and its step at the bare loop."""
    check, step = (results.find(key, case["threads"], results.sizes[-1]) if results.sizes else None
                   for key in ("check/fp32", "step/adamw/fp32"))
    if not check or not step or "loop_GBps" not in step.raw or case["parameters"] < 1 << 26:
        return None
    return case["parameters"] * (4 / check["read_GBps"] + 28 / step["loop_GBps"]) * 1e-9


def comparisons(results):
    largest = results.sizes[-1] if results.sizes else 0
    size = size_text(largest)
    dtypes = ("fp16", "bf16", "fp32")
    operations = [key for first in OPERATIONS for key in results.keys(first)]
    found = []
    for text, aim, keys, counter in (
            (f"check, {size}, against the best plain read", 0.95, [f"check/{d}" for d in dtypes], "vs_read"),
            (f"check, in huge pages, {size}, against the best plain read in them", None,
             [f"huge/check/{d}" for d in dtypes], "vs_read"),
            (f"AdamW apply, {size}, against the best copy", 1.0, [f"step/adamw/{name}" for name in LAYOUTS], COPY),
            (f"AdamW apply, in huge pages, {size}, against the best copy in them", None,
             [f"huge/step/adamw/{name}" for name in LAYOUTS], COPY),
            (f"element-wise operations, {size}, against the best copy", None, operations, COPY),
            (f"element-wise operations, {size}, against a bare loop of the same reads and writes", None, operations,
             "vs_loop"),
            (f"zeroing gradients, {size}, against the best fill", None, results.keys("zero"), "vs_fill"),
            (f"diagnosis, {size}, against the best plain read", None, results.keys("diagnose"), "vs_read"),
            (f"diagnosis with histogram, {size}, against the best plain read", None, results.keys("histogram"),
             "vs_read"),
            ("tail over 10000 x 64 elements, against one flat tensor of the same bytes", 0.85,
             ["model/10000x64/fp32", "model/10000x64/fp16_master"], "vs_flat")):
        found.append(Comparison(text, aim))
        for key in keys:
            for threads in results.threads:
                row = results.find(key, threads, None if counter == "vs_flat" else largest)
                if row and counter in row.raw:
                    what = key if keys is operations else key.split("/")[-1]
                    found[-1].add(f"{what}, {threads} thread{'s' * (threads > 1)}", row[counter],
                                  [run[counter] for run in row.runs],
                                  limits_of_small(results, key, threads, row) if counter == "vs_flat" else
                                  limits_of(results, key, threads, row, counter.removeprefix("vs_")))
    for text, aim, model in (("tail of GPT-2 124M, times PyTorch's speed", 1.6, "gpt2_124m"),
                             ("tail over 1000 x 1024 elements, times PyTorch's speed", 5, "1000x1024")):
        found.append(Comparison(text, aim))
        for case in [case for case in results.cases if case["model"] == model]:
            seconds = tail_at_limit(results, case)
            found[-1].add(f"fp32, {case['threads']} thread{'s' * (case['threads'] > 1)}", case["vs_torch"],
                          [run["vs_torch"] for run in case["runs"]],
                          {TRAFFIC: case["torch_us"] * 1e-6 / seconds} if seconds else {})
    return [comparison for comparison in found if comparison.measured]


def comparison_lines(results):
    return [line for comparison in comparisons(results) for line in comparison.lines()]


def machine(results):
    c = results.context
    caches = ", ".join(f"L{k['level']} {k['size'] // 1024} KiB"
                       for k in c.get("caches", []) if k["type"] != "Instruction")
    lines = [f"- {c.get('processor', 'unknown processor')}, {c['num_cpus']} processors; {caches}",
             f"- {c['gradscaler']}", f"- {c['date'][:10]}, {c['mode']} run, load average at the start "
             f"{c['load_avg'][0]:.1f}, transparent huge pages: {c['transparent_hugepages']}"]
    runs = max(len(r.runs) for r in results.all)
    if runs > 1:
        lines.append(f"- what is compared ran {runs} times, each in a new process; here are the medians")
    if results.peers:
        lines.append(f"- PyTorch {results.peers['torch']}")
    return lines + [""]


def against(numbers):
    """Its speed over that of its references."""
    return ", ".join(f"{value:.2f} {name.removeprefix('vs_')}" for name, value in numbers.items()
                     if name.startswith("vs_") and name != "vs_gradscaler")


def all_rows(results):
    """A line for each benchmark at the largest size."""
    rows = [[r.key, r.threads, f"{r['GBps']:.1f} GB/s" if "GBps" in r.raw else time_text(r["us"]), against(r.raw)]
            for r in results.rows if r.log2 in (None, results.sizes[-1])]
    rows += [[f"tail of {case['model']}, fp32", case["threads"], time_text(case["gradscaler_us"]), against(case)]
             for case in results.cases]
    return table(["benchmark", "threads", "", "against"], rows)


def by_size(results):
    """A line for each benchmark that has several sizes: its GB/s at each."""
    rows = []
    for key, threads in dict.fromkeys((r.key, r.threads) for r in results.rows if r.log2):
        found = [results.find(key, threads, size) for size in results.sizes]
        if sum(row is not None for row in found) > 1:
            rows.append([key, threads, *(f"{row['GBps']:.3g}" if row else "" for row in found)])
    return table(["benchmark", "threads", *map(size_text, results.sizes)], rows)


def markdown(results):
    out = ["# CPU results", "",
           "Made by `scripts/bench`; [benchmarks/README.md](../../README.md) describes the measurements.",
           ""] + machine(results)
    out += ["## Comparisons and goals", ""] + table(["what", "case", "measured", "goal", "limit", "of the limit"],
                                                    comparison_lines(results))
    if results.sizes:
        out += [f"## All, at {size_text(results.sizes[-1])}", ""] + all_rows(results)
        out += ["## GB/s by size", ""] + by_size(results)
    for row in results.left_out:
        out.append(f"Left out: {row.key}, {row.threads} thread(s): {row.error}")
    return "\n".join(out).rstrip() + "\n"


def cpuinfo():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    return {k.strip(): v.strip() for k, v in re.findall(r"^([^:\n]+):(.*)$", text.split("\n\n")[0], re.M)}


def processor():
    """Name of the processor; a name without a number, as some virtual machines have, gets family and model."""
    info = cpuinfo()
    name = info.get("model name") or platform.processor() or platform.machine()
    if not re.search(r"\d", name) and "cpu family" in info:
        name += f" family {info['cpu family']} model {info['model']}"
    return re.sub(r"\s+", " ", re.sub(r"\((R|TM)\)|\bCPU\b|@.*", "", name)).strip()


def slug():
    return re.sub(r"[^a-z0-9]+", "-", processor().lower()).strip("-")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw", nargs="?", type=pathlib.Path)
    parser.add_argument("--runs", nargs="*", type=pathlib.Path, default=[])
    parser.add_argument("--peers", nargs="*", type=pathlib.Path, default=[])
    parser.add_argument("--into", type=pathlib.Path)
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--slug", action="store_true")
    parser.add_argument("--filter", action="store_true")
    arguments = parser.parse_args()
    if arguments.slug or arguments.filter:
        print(slug() if arguments.slug else COMPARED)
        return
    if not arguments.raw:
        parser.error("RAW.json is missing")
    raw = records.load(arguments.raw)
    for path in arguments.runs:
        raw["benchmarks"] += json.loads(path.read_text())["benchmarks"]
    peers, *later = [json.loads(path.read_text()) for path in arguments.peers] or [None]
    for run in later:
        peers["cases"] += run["cases"]
    raw["context"].setdefault("processor", processor())
    results = Results(raw, peers)
    if arguments.tables:
        print(markdown(results))
        return
    for text, what, value, verdict, limit, of_limit in comparison_lines(results):
        print(f"{text}: {what}: {value}" + (f" ({verdict})" if verdict else "") +
              (f"; limit {limit}, {of_limit} of it" if limit else ""))
    if arguments.into:
        arguments.into.mkdir(parents=True, exist_ok=True)
        text = records.text(results.context, [run for row in results.all for run in row.runs], results.peers)
        (arguments.into / "cpu.json").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
