#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bandwidth that the CUDA backend's launch shapes lose, by a model of the memory bus. Needs no device.

  model.py LAUNCH_SHAPES

LAUNCH_SHAPES is the program cuda.launch_shapes of the tests, which asks the library how it divides a list into chunks
and how many warps share one. The figure of a shape and a pass is the time for its bytes at full bandwidth divided by
the time of the model: 1 is a pass that saturates the bus throughout. Large passes must reach
LEAST, and the model must fit what was measured; exit status 1 if not.

The model: a team of warps takes its chunks, or parts of them, in turn, as the kernels do, needs OVERHEAD to find each,
and then moves its bytes. A warp has 2 KB of loads in flight, in a check on sm_120 half of that, with a latency of 0.6
us: 3.4 KB/us. n busy warps together move n / (n + h) of what the bus could at most, and share it evenly. h is the
bandwidth over HALF, which fits the rows of ROWS: times of an H200 that differ by 9 %. The model is compared with them
first. Bandwidths are nominal ones times the part that an H200 reaches; no other device was measured.
"""
import heapq
import json
import math
import os
import subprocess
import sys

import shapes

# The least figure of large passes: steps of 100 MB, and checks of 200 MB, which take whole chunks.
LEAST, LEAST_CHECK = 0.95, 0.91
OVERHEAD = 0.6  # us
COPY = 0.81  # of the nominal bandwidth: an H200 copies 3.9 TB/s of 4.8
READ = 1.1  # of a copy, measured there too
HALF = 6000.0  # bytes per us

# Multiprocessors, resident blocks of a check (of 80 registers before Hopper and on sm_120), 16-byte loads in flight per
# lane of it, and the nominal bandwidth in TB/s.
DEVICES = {"H200": (132, 4, 4, 4.8), "B200": (148, 4, 4, 8.0), "A100": (108, 3, 4, 2.04), "L40S": (142, 3, 4, 0.864),
           "RTX 4090": (128, 3, 4, 1.008), "RTX 5090": (170, 3, 2, 1.792), "T4": (40, 3, 4, 0.32)}
STEP_BLOCKS = 4  # by the launch bounds, on every device
# Bytes per element, and bytes that a warp moves per us with four loads in flight.
PASSES = {"check fp16": (2, 3374.0), "check fp32": (4, 3856.0), "AdamW, 28 bytes": (28, 3388.0)}
SHAPES = {**shapes.SETS, "4 x 2^26": [1 << 26] * 4, "2^31": [(1 << 31) + 4096]}
# Large lists of which a whole tail was measured on an H200 with chunks as they are, and the warps that shared one.
ROWS = {"GPT-2 XL": 1, "Llama 7B, 1 of 8": 4, "GPT-2 124M": 1, "BERT-large": 2, "T5-base": 1, "10 x 16 Mi": 1,
        "200 x 1 Mi": 1}
RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../results/nvidia-h200/raw.jsonl")
FITS = 0.03  # how far the model may be from a row, once the mean over all is taken out


class Library:
    """The library's choice."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def launch(self, counts, device, name):
        """(elements of a chunk, of a part, warps that share one, teams)"""
        units, blocks, _, bandwidth = DEVICES[device]
        slots = units * (STEP_BLOCKS if name.startswith("AdamW") else blocks)
        numbers = [slots, bandwidth * COPY * 1e6, PASSES[name][0], int(name.startswith("AdamW")), *counts]
        self.process.stdin.write(" ".join(map(str, numbers)) + "\n")
        self.process.stdin.flush()
        return map(int, self.process.stdout.readline().split())


def parts(counts, chunk, part):
    """Elements of the parts of all chunks; those after a tensor's end have 0."""
    result = []
    for count in counts:
        result += [part] * (count // part) + [count % part] * (count % part > 0)
        result += [0] * (-len(result) % (chunk // part))
    return result


def simulate(chunks, teams, team_rate, bus_rate):
    """Microseconds to move all chunks; rates in elements per us, that of the bus a function of the busy teams."""
    waiting = [(OVERHEAD, team, team) for team in range(min(teams, len(chunks)))]  # (when, team, chunk)
    active = []  # (level of `moved` at which the chunk is done, team, chunk)
    moved = now = 0.0  # elements moved by a team that was active throughout
    while active or waiting:
        rate = min(team_rate, bus_rate(len(active)) / len(active)) if active else 0.0
        done = now + (active[0][0] - moved) / rate if active else float("inf")
        if waiting and waiting[0][0] <= done:
            when, team, chunk = heapq.heappop(waiting)
            moved += rate * (when - now)
            now = when
            heapq.heappush(active, (moved + chunks[chunk], team, chunk))
        else:
            moved, team, chunk = heapq.heappop(active)
            now = done
            if chunk + teams < len(chunks):
                heapq.heappush(waiting, (now + OVERHEAD, team, chunk + teams))
    return now


def pass_time(name, device, chunks, warps, teams):
    """(Modelled us, us at full bandwidth)"""
    units, blocks, loads, bandwidth = DEVICES[device]
    size, warp_rate = PASSES[name]
    full = bandwidth * COPY * 1e6 / size
    half = bandwidth * COPY * 1e6 / HALF
    resident = 8 * units * (STEP_BLOCKS if name.startswith("AdamW") else blocks)
    if name.startswith("AdamW"):
        chunks = chunks[::-1]  # a step walks the other way
    else:
        full *= READ
        warp_rate *= loads / 4

    def bus_rate(busy):
        return full * (1 + half / resident) * busy * warps / (busy * warps + half)

    return simulate(chunks, teams, warps * warp_rate / size, bus_rate), sum(chunks) / full


def compare_with_rows():
    """Prints modelled and measured times of ROWS over bandwidth; the largest difference once the mean is taken out."""
    with open(RESULTS, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    times = {}
    for row in rows:
        if "us" in row:
            times.setdefault(row["case"], []).append(row["us"])
    table = {}
    for shape, warps in ROWS.items():
        counts = shapes.SETS[shape]
        chunk = next(size for size in (1 << 14, 1 << 15, 1 << 16)
                     if size == 1 << 16 or sum(-(-n // size) for n in counts) <= 4096)
        chunks = parts(counts, chunk, chunk)
        teams = min(132 * 4 * 8 // warps, -(-len(chunks) * warps // 8) * 8 // warps)
        modelled = [pass_time(name, "H200", chunks, warps, teams) for name in ("check fp32", "AdamW, 28 bytes")]
        measured = sorted(times[f"tail, eager: {shape}, fp32 grads"])[0]
        ideal = sum(full for _, full in modelled)
        table[shape] = (ideal / sum(us for us, _ in modelled), ideal / measured)
    mean = sum(math.log(b / a) for a, b in table.values()) / len(table)
    worst = 0.0
    print("| H200, whole tail of fp32 gradients | model | measured, times the mean ratio |\n|---|---|---|")
    for shape, (model, row) in table.items():
        row *= math.exp(-mean)
        worst = max(worst, abs(row / model - 1))
        print(f"| {shape} | {model:.3f} | {row:.3f} |")
    return worst


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    library = Library(sys.argv[1])
    worst = compare_with_rows()
    failed = [f"the model is {worst:.3f} from a measured row, at most {FITS}"] if worst > FITS else []
    for device in DEVICES:
        print(f"\n| {device}: figure (warps, parts of a chunk) | " + " | ".join(PASSES) + " |\n|---|" + "---|" * 3)
        for shape, counts in SHAPES.items():
            row = []
            for name, (size, _) in PASSES.items():
                chunk, part, warps, teams = library.launch(counts, device, name)
                chunks = parts(counts, chunk, part)
                time, full = pass_time(name, device, chunks, warps, teams)
                row.append(f"{full / time:.3f} ({warps}, {chunk // part})")
                least, large = (LEAST, 1e8) if name.startswith("AdamW") else (LEAST_CHECK, 2e8)
                if sum(counts) * size >= large and full / time < least:
                    failed.append(f"{device}, {shape}, {name}: {full / time:.3f}, at least {least}")
            print(f"| {shape} | " + " | ".join(row) + " |")
    for line in failed:
        print("below the floor:", line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
