# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the numbers of benchmark runs: Google Benchmark's JSON, and the JSON files that are committed.

cpu.json has one line for a benchmark with a number of threads. Under "by_size" it has the GB/s of the call itself for
each of the "sizes", the log2 of the bytes that the call touches, to three digits; under "single" all counters, for the
largest size, which ends the name, or for the only one. A list in place of a number has one for each run. `vs_X` is left
out where GBps / X_GBps or X_us / us gives the same two decimals. Not kept are medians within a run, times that follow
from GB/s, and the machine's name.
"""
import json
import pathlib
import re

NOT_KEPT = (r"(name|model|run_type|.*iterations|.*_time|time_unit|.*family.*|.*index|run_name|repetitions|threads|"
            r".*median_us)$")


def canonical(name):
    """(benchmark, threads, log2 of bytes or None) of Google Benchmark's name."""
    parts = name.split("/")
    options = dict(part.split(":") for part in parts if ":" in part)
    left_out = ("threads:", "log2_bytes:", "iterations:", "manual_time")
    key = "/".join(part for part in parts if not part.startswith(left_out))
    return key, int(options.get("threads", 1)), int(options["log2_bytes"]) if "log2_bytes" in options else None


def rounded(value, digits=4):
    value = float(f"{value:.{digits}g}")
    return int(value) if value == int(value) else value


def derived(numbers, name):
    """`vs_X` from the other numbers of a run, or None."""
    reference = name.removeprefix("vs_")
    for one, other in (("GBps", f"{reference}_GBps"), (f"{reference}_us", "us"),
                       (f"{reference}_us", "gradscaler_us")):
        if numbers.get(one) and numbers.get(other):
            return numbers[one] / numbers[other]
    return None


def kept(run, sized):
    numbers = {k: v if isinstance(v, (str, bool)) else rounded(v) for k, v in run.items() if not re.match(NOT_KEPT, k)}
    for name in [k for k in numbers if k.startswith("vs_")]:
        value = derived(numbers, name)
        if value and f"{value:.2f}" == f"{run[name]:.2f}":
            del numbers[name]
    return {k: v for k, v in numbers.items() if not (sized and k.endswith("us"))}


def one_or_all(values):
    return values[0] if len(values) == 1 else values


def pack(runs):
    """Lines with GB/s by size and lines with all counters, of runs [(line, log2 of bytes or None, numbers)]."""
    lines = {}
    for line, log2, numbers in runs:
        lines.setdefault(line, {}).setdefault(log2, []).append(numbers)
    by_size, single = {}, {}
    for line, sizes in lines.items():
        largest = max((size for size in sizes if size is not None), default=None)
        for size, found in sizes.items():
            if size != largest and all("GBps" in run for run in found):
                by_size.setdefault(line, {})[size] = one_or_all([rounded(run["GBps"], 3) for run in found])
                continue
            found = [kept(run, size is not None) for run in found]
            names = dict.fromkeys(name for run in found for name in run)
            single[line if size is None else f"{line} {size}"] = {
                name: one_or_all([run.get(name) for run in found]) for name in names}
    return by_size, single


def unpack(columns):
    """The runs of a line, with the ratios that were left out."""
    runs = max(len(v) if isinstance(v, list) else 1 for v in columns.values())
    for i in range(runs):
        run = {k: v[i] if isinstance(v, list) else v for k, v in columns.items()}
        run = {k: float(v) if isinstance(v, int) else v for k, v in run.items() if v is not None}
        references = {f"vs_{match[1]}" for k in run if (match := re.match(r"(.+)_(GBps|us)$", k))}
        yield run | {name: value for name in sorted(references - run.keys()) if (value := derived(run, name))}


def name_of(line):
    """Google Benchmark's name of "check/fp16 2" or "check/fp16 2 28"."""
    key, threads, *log2 = line.split()
    return f"{key}/threads:{threads}" + "".join(f"/log2_bytes:{size}" for size in log2)


def load(path):
    """A run as Google Benchmark writes it, from its file or from cpu.json."""
    raw = json.loads(path.read_text())
    if "single" not in raw:
        return raw
    sizes, raw["benchmarks"] = raw["sizes"], []
    for line, numbers in raw.pop("by_size").items():
        for size, number in numbers.items() if isinstance(numbers, dict) else zip(sizes, numbers, strict=True):
            raw["benchmarks"] += [{"name": name_of(f"{line} {size}"), **run} for run in unpack({"GBps": number})]
    for line, columns in raw.pop("single").items():
        raw["benchmarks"] += [{"name": name_of(line), **run} for run in unpack(columns)]
    if "peers" in raw:
        cases = raw["peers"]["cases"].items()
        raw["peers"]["cases"] = [{"model": line.split()[0], "threads": int(line.split()[1]), **run}
                                 for line, columns in cases for run in unpack(columns)]
    return raw


def laid_out(value, indent=""):
    """JSON in which a list of numbers, or a dict of them, is a line."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    if not any(isinstance(part, (dict, list)) for part in parts):
        return json.dumps(value)
    deeper = indent + " "
    lines = [deeper + laid_out(part, deeper) for part in parts]
    if isinstance(value, dict):
        lines = [f"{deeper}{json.dumps(key)}: {laid_out(part, deeper)}" for key, part in value.items()]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(lines) + "\n" + indent + closing


def resumed(new, path):
    """The results that a stopped benchmark left in `path`, to go on with; `new` if there are none."""
    if path is None or not path.exists():
        return new
    results = json.loads(path.read_text())
    for key in ("steps", "bytes", "parameters"):
        was, now = results["context"][key], new["context"][key]
        if was != now:
            raise SystemExit(f"{path} has runs of {was} {key}, not {now}")
    return results


def lines_of(packed):
    return ",\n".join(f"{json.dumps(line)}: {json.dumps(columns)}" for line, columns in packed.items())


def text(context, runs, peers):
    """cpu.json."""
    context = {k: v for k, v in context.items() if k not in ("host_name", "cpu", "library_build_type")}
    context["executable"] = pathlib.Path(context["executable"]).name
    names = [canonical(run["name"]) for run in runs]
    by_size, single = pack([(f"{key} {threads}", log2, run)
                            for (key, threads, log2), run in zip(names, runs, strict=True)])
    sizes = max(map(list, by_size.values()), key=len, default=[])
    by_size = {line: list(numbers.values()) if list(numbers) == sizes else numbers for line, numbers in by_size.items()}
    out = (f'{{"context": {json.dumps(context)},\n"sizes": {json.dumps(sizes)},\n'
           f'"by_size": {{\n{lines_of(by_size)}\n}},\n"single": {{\n{lines_of(single)}\n}}')
    if peers:
        about = {k: v for k, v in peers.items() if k != "cases"}
        _, cases = pack([(f"{case['model']} {case['threads']}", None, case) for case in peers["cases"]])
        out += f',\n"peers": {json.dumps(about)[:-1]}, "cases": {{\n{lines_of(cases)}\n}}}}'
    return out + "}\n"
