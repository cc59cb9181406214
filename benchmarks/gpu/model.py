#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bandwidth that the CUDA backend's launch shapes lose, by a model of the memory bus. Needs no device.

  model.py LAUNCH_SHAPES [--warps]

LAUNCH_SHAPES is the program cuda.launch_shapes of the tests, which asks the library how it divides a list into chunks
and how many warps share one. The figure of a shape and a pass is the time for its bytes at full bandwidth divided by
the time of the model: 1 is a pass that saturates the bus throughout. A list of 100 MB or more must reach LEAST, a
smaller one what it reached before (FORMER); exit status 1 if one does not. --warps adds the figures of every possible
choice.

The model: a team of warps takes its chunks in turn, as the kernels do, needs OVERHEAD to find each, and then moves its
bytes. A warp has 2 KB of loads in flight, in a check on sm_120 half of that, with a latency of 0.6 us: 3.4 KB/us. All
teams together move no more than the bus does, and share it evenly. Bandwidths are nominal ones times the part that
an H200 reaches; no other device was measured.
"""
import argparse
import heapq
import subprocess
import sys

import shapes

LEAST = 0.95
OVERHEAD = 0.6  # us
COPY = 0.81  # of the nominal bandwidth: an H200 copies 3.9 TB/s of 4.8
READ = 1.1  # of a copy, measured there too

# Multiprocessors, resident blocks of a check (of 80 registers before Hopper and on sm_120), 16-byte loads in flight per
# lane of it, and the nominal bandwidth in TB/s.
DEVICES = {"H200": (132, 4, 4, 4.8), "B200": (148, 4, 4, 8.0), "A100": (108, 3, 4, 2.04), "L40S": (142, 3, 4, 0.864),
           "RTX 4090": (128, 3, 4, 1.008), "RTX 5090": (170, 3, 2, 1.792), "T4": (40, 3, 4, 0.32)}
STEP_BLOCKS = 4  # by the launch bounds, on every device
# Bytes per element, and bytes that a warp moves per us with four loads in flight.
PASSES = {"check fp16": (2, 3374.0), "check fp32": (4, 3856.0), "AdamW, 28 bytes": (28, 3388.0)}
SHAPES = {**shapes.SETS, "4 x 2^26": [1 << 26] * 4, "2^31": [(1 << 31) + 4096]}
# Of an H200, before choose_warps considered partial rounds.
FORMER = {"ResNet-50": (0.910, 0.953, 0.994), "1000 x 1024": (0.431, 0.603, 0.917),
          "10000 x 64": (0.136, 0.240, 0.698)}


class Library:
    """The library's choice."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def launch(self, counts, device, name):
        """(chunks, warps that share one, teams)"""
        units, blocks, _, bandwidth = DEVICES[device]
        slots = units * (STEP_BLOCKS if name.startswith("AdamW") else blocks)
        self.process.stdin.write(" ".join(map(str, [slots, bandwidth * COPY * 1e6, PASSES[name][0], *counts])) + "\n")
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


def figure(name, device, chunks, warps, teams):
    units, _, loads, bandwidth = DEVICES[device]
    size, warp_rate = PASSES[name]
    bus_rate = bandwidth * COPY * 1e6 / size
    if name.startswith("AdamW"):
        chunks = chunks[::-1]  # a step walks the other way
    else:
        bus_rate *= READ
        warp_rate *= loads / 4
    return sum(chunks) / bus_rate / simulate(chunks, teams, warps * warp_rate / size, bus_rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("launch_shapes")
    parser.add_argument("--warps", action="store_true")
    options = parser.parse_args()
    library = Library(options.launch_shapes)
    failed = []
    for device, (units, blocks, _, _) in DEVICES.items():
        print(f"\n| {device}: figure (warps a chunk) | " + " | ".join(PASSES) + " |\n|---|" + "---|" * len(PASSES))
        for shape, counts in SHAPES.items():
            row, others = [], {1: [], 2: [], 4: [], 8: []}
            for i, (name, (size, _)) in enumerate(PASSES.items()):
                chunks, warps, teams = library.launch(counts, device, name)
                result = round(figure(name, device, chunks, warps, teams), 3)
                row.append(f"{result:.3f} ({warps})")
                least = LEAST if sum(counts) * size >= 1e8 else FORMER[shape][i] if device == "H200" else 0.0
                if result < least:
                    failed.append(f"{device}, {shape}, {name}: {result:.3f}, at least {least}")
                resident = STEP_BLOCKS if name.startswith("AdamW") else blocks
                for other in others if options.warps else ():
                    others[other].append(f"{figure(name, device, chunks, other, units * resident * 8 // other):.3f}")
            print(f"| {shape} | " + " | ".join(row) + " |")
            for other in others if options.warps else ():
                print(f"| if {other} | " + " | ".join(others[other]) + " |")
    for line in failed:
        print("below the floor:", line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
