#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bandwidth that the CUDA backend's launch shapes lose, by a model of the memory bus: needs no device, and nothing
here has been measured on one.

  model.py LAUNCH_SHAPES [--warps]

LAUNCH_SHAPES is the program cuda.launch_shapes of the tests, which asks the library how it divides a list into chunks
and how many warps share one. The figure of a shape and a pass is the time for its bytes at full bandwidth divided by
the time of the model: 1 is a pass that saturates the bus throughout. A list of 100 MB or more must reach LEAST, a
smaller one what it reached before (FORMER); exit status 1 if one does not. --warps adds the figures of every possible
choice.

The model: a team of warps takes its chunks in turn, as the kernels do, needs OVERHEAD to find each, and then moves its
bytes. A warp has 2 KB of loads in flight, with a latency of 0.6 us: 3.4 KB/us. All teams together move no more than the
bus does, and share it evenly.
"""
import argparse
import heapq
import subprocess
import sys

import shapes

LEAST = 0.95
OVERHEAD = 0.6  # us
MULTIPROCESSORS = {"H200": 132, "B200": 148}
# Bytes per element, bytes that a warp moves per us, and what the bus moves per multiprocessor of the device: an H200
# reads 4.5 TB/s, and reads and writes 4.3.
PASSES = {"check fp16": (2, 3374.0, 4.5e6 / 132), "check fp32": (4, 3856.0, 4.5e6 / 132),
          "AdamW, 28 bytes": (28, 3388.0, 4.3e6 / 132)}
SHAPES = {**shapes.SETS, "4 x 2^26": [1 << 26] * 4, "2^31": [(1 << 31) + 4096]}
# Of an H200, before choose_warps considered partial rounds.
FORMER = {"ResNet-50": (0.910, 0.953, 0.994), "1000 x 1024": (0.431, 0.603, 0.917),
          "10000 x 64": (0.136, 0.240, 0.698)}


class Library:
    """The library's choice."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def launch(self, counts, units):
        """(chunks, warps that share one, teams)"""
        self.process.stdin.write(" ".join(map(str, [units, *counts])) + "\n")
        self.process.stdin.flush()
        size, warps, teams = map(int, self.process.stdout.readline().split())
        chunks = []
        for count in counts:
            chunks += [size] * (count // size) + [count % size] * (count % size > 0)
        return chunks, warps, teams


def simulate(chunks, teams, team_rate, bus_rate):
    """Microseconds to move all chunks; rates in elements per us."""
    waiting = [(OVERHEAD, team, team) for team in range(min(teams, len(chunks)))]  # (when, team, chunk)
    active = []  # (level of `moved` at which the chunk is done, team, chunk)
    moved = now = 0.0  # elements moved by a team that was active throughout
    while active or waiting:
        rate = min(team_rate, bus_rate / len(active)) if active else 0.0
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


def figure(name, chunks, warps, teams, units):
    size, warp_rate, bus_rate = PASSES[name]
    bus_rate *= units / size
    ordered = chunks[::-1] if name.startswith("AdamW") else chunks  # a step walks the other way
    return sum(chunks) / bus_rate / simulate(ordered, teams, warps * warp_rate / size, bus_rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("launch_shapes")
    parser.add_argument("--warps", action="store_true")
    options = parser.parse_args()
    library = Library(options.launch_shapes)
    failed = []
    for device, units in MULTIPROCESSORS.items():
        print(f"\n| {device} | warps a chunk | " + " | ".join(PASSES) + " |\n|---|---|" + "---|" * len(PASSES))
        for shape, counts in SHAPES.items():
            chunks, warps, teams = library.launch(counts, units)
            figures = [round(figure(name, chunks, warps, teams, units), 3) for name in PASSES]
            print(f"| {shape} | {warps} | " + " | ".join(f"{x:.3f}" for x in figures) + " |")
            for i, (name, (size, _, _)) in enumerate(PASSES.items()):
                least = LEAST if sum(counts) * size >= 1e8 else FORMER[shape][i] if device == "H200" else 0.0
                if figures[i] < least:
                    failed.append(f"{device}, {shape}, {name}: {figures[i]:.3f}, at least {least}")
            for other in (1, 2, 4, 8) if options.warps else ():
                at = units * 32 // other
                print(f"|  | if {other} | "
                      + " | ".join(f"{figure(name, chunks, other, at, units):.3f}" for name in PASSES) + " |")
    for line in failed:
        print("below the floor:", line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
