#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the GPT with every format of masters and state from several seeds. Prints the loss on held-out text and writes
a plot of the first seed.

Above is the loss; below is what it differs by from the fp32 run, beside fp32 runs from the other seeds, which differ by
chance. Usage: curves.py [--steps N] [--seeds N] <gpt> <library> <plot.svg> <text file...>
"""
import argparse
import concurrent.futures
import os
import re
import statistics
import subprocess

FORMATS = [("fp32", "full", "#000000"), ("split16", "full", "#1f77b4"), ("split16", "16bit", "#2ca02c"),
           ("split16", "8bit", "#d62728"), ("split8", "8bit", "#9467bd"), ("stochastic", "8bit", "#ff7f0e")]
GREY, LINES, SPREAD = "#bbbbbb", 30, 0.2
WIDTH, LEFT, RIGHT, TOP, UPPER, GAP, LOWER = 760, 60, 200, 34, 220, 34, 170


def train(options, master, state, seed):
    """[(step, mean loss since the line before)] of a run, and the loss on held-out text."""
    command = [options.gpt, "--library", options.library, "--arm", "scaled", "--layers", "3", "--width", "64",
               "--steps", str(options.steps), "--lines", str(LINES), "--seed", str(seed), "--state", state,
               "--master", master, *options.text]
    output = subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout
    steps = [(int(step), float(loss)) for step, loss in re.findall(r"^step +(\d+)  loss +([\d.]+)", output, re.M)]
    return steps, float(re.search(r"^held out: ([\d.]+)", output, re.M)[1])


def panel(curves, top, height, low, high, steps, marks):
    """A frame with marks on the left, and a line for each (points, colour, width)."""
    def y(value):
        return top + (high - min(max(value, low), high)) / (high - low) * height

    def x(step):
        return LEFT + step / steps * (WIDTH - LEFT - RIGHT)

    parts = [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(mark):.0f}" y2="{y(mark):.0f}" stroke="#ddd"/>'
             f'<text x="{LEFT - 6}" y="{y(mark) + 4:.0f}" text-anchor="end">{mark:g}</text>' for mark in marks]
    for points, colour, width in curves:
        path = " ".join(f"{x(step):.0f},{y(value):.0f}" for step, value in points)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="{width}" points="{path}"/>')
    return parts


def plot(runs, others, steps):
    """The document. `runs`: {(master, state): points}; `others`: fp32 runs from other seeds."""
    reference = dict(runs["fp32", "full"])

    def differences(points):
        return [(step, loss - reference[step]) for step, loss in points]

    losses = [loss for points in runs.values() for _, loss in points]
    low, high = int(min(losses)), int(max(losses)) + 1
    lower = TOP + UPPER + GAP
    height = lower + LOWER + 40
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif"'
             ' font-size="12">', '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="{LEFT}" y="20" font-size="15">Loss of the GPT by masters and state, nats a byte</text>']
    curves = [(runs[master, state], colour, 1.5) for master, state, colour in FORMATS]
    parts += panel(curves, TOP, UPPER, low, high, steps, range(low, high + 1))
    parts.append(f'<text x="{LEFT}" y="{lower - 8}">minus the loss with fp32 masters and state</text>')
    parts += panel([(differences(points), GREY, 1) for points in others]
                   + [(differences(points), colour, 1.5) for points, colour, _ in curves],
                   lower, LOWER, -SPREAD, SPREAD, steps, [-SPREAD, -SPREAD / 2, 0, SPREAD / 2, SPREAD])
    names = [(f"masters {master}, state {state}", colour) for master, state, colour in FORMATS]
    for i, (name, colour) in enumerate([*names, (f"fp32, {len(others)} other seeds", GREY)]):
        parts.append(f'<text x="{WIDTH - RIGHT + 10}" y="{TOP + 16 * i + 10}" fill="{colour}">{name}</text>')
    parts += [f'<text x="{LEFT + part / 4 * (WIDTH - LEFT - RIGHT):.0f}" y="{lower + LOWER + 16}"'
              f' text-anchor="middle">{steps * part // 4}</text>' for part in range(5)]
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{height - 8}" text-anchor="middle">update</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=5)
    for name in ("gpt", "library", "plot"):
        parser.add_argument(name)
    parser.add_argument("text", nargs="+")
    options = parser.parse_args()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {(master, state): [pool.submit(train, options, master, state, 1 + i) for i in range(options.seeds)]
                for master, state, _ in FORMATS}
        runs = {name: [job.result() for job in seeds] for name, seeds in jobs.items()}
    first = {name: seeds[0][0] for name, seeds in runs.items()}
    with open(options.plot, "w", encoding="utf-8") as file:
        file.write(plot(first, [points for points, _ in runs["fp32", "full"][1:]], options.steps))
    for (master, state), seeds in runs.items():
        losses = [loss for _, loss in seeds]
        print(f"masters {master:10}  state {state:5}  held out {statistics.fmean(losses):.3f}"
              f" ({min(losses):.3f} to {max(losses):.3f})")


if __name__ == "__main__":
    main()
