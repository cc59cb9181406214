#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the goals of all committed results into docs/dev/goals.md.

  benchmarks/compare.py [--check | --all]

Reads benchmarks/results/*/cpu.json and the H200's rows, and replaces the text between the markers. A cell of the
CPU's table has the least and the greatest of a goal's cases, and how many of them are below the goal, and why.
--check exits with 1 if the page is out of date. --all prints the CPU's table with what has no goal.
"""
import argparse
import pathlib
import re
import sys

import records
import table

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks/gpu"))
import goals  # noqa: E402

PAGE = ROOT / "docs/dev/goals.md"
PART = r"(?<=<!-- {} -->\n).*?(?=<!-- end -->\n)"


def cell(comparison):
    if comparison is None:
        return "not measured"
    values = [value for _, value in comparison.measured]
    span = f"{min(values):.2f}" if len(values) == 1 else f"{min(values):.2f} to {max(values):.2f}"
    if comparison.aim is None:
        return span
    causes = [comparison.cause_of_miss(what, value) for what, value in comparison.measured if value < comparison.aim]
    bound, missed = causes.count(table.TRAFFIC), len(causes) - causes.count(table.TRAFFIC)
    if bound:
        span += f"; {bound} of {len(values)} bound by traffic"
    if missed:
        span += f"; {missed} of {len(values)} missed"
    for cause, word in ((table.ARITHMETIC, "arithmetic"), (table.PER_TENSOR, "tensors")):
        if cause in causes:
            span += f", {causes.count(cause)} by {word}"
    return span


def side_by_side(everything=False):
    columns, aims = {}, {}
    for path in sorted((ROOT / "benchmarks/results").glob("*/cpu.json")):
        results = table.Results(records.load(path), None)
        found = {comparison.text: comparison for comparison in table.comparisons(results)
                 if everything or comparison.aim is not None}
        columns[f"[{results.context['processor']}](../../benchmarks/results/{path.parent.name}), "
                f"{results.context['date'][:10]}"] = found
        aims.update({text: comparison.aim for text, comparison in found.items()})
    rows = [[text, "" if aim is None else f"{aim:g}", *(cell(found.get(text)) for found in columns.values())]
            for text, aim in aims.items()]
    return "\n".join(table.table(["", "goal, at least", *columns], rows))


def on_gpu():
    with open(ROOT / "benchmarks/results/nvidia-h200/raw.jsonl", encoding="utf-8") as file:
        judged = goals.judge(goals.join(file))
    cases = {}
    for g in judged:
        if g["measured"] is not None:
            missed = "" if g["verdict"] == "met" else ", missed"
            cases.setdefault((g["goal"], f"{g['figure']} {g['asked for']} {g['limit']:g}"), []).append(
                f"{g['case']}: {g['measured']:.3g}{missed}")
    return "\n".join(table.table(["", "goal", "H200"], [[*key, "; ".join(found)] for key, found in cases.items()]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    if arguments.all:
        print(side_by_side(everything=True))
        return
    page = PAGE.read_text()
    fresh = page
    for name, text in (("cpu", side_by_side()), ("gpu", on_gpu())):
        fresh = re.sub(PART.format(name), lambda _, text=text: text, fresh, flags=re.S)
    if arguments.check:
        sys.exit("docs/dev/goals.md: run benchmarks/compare.py" if fresh != page else 0)
    PAGE.write_text(fresh)


if __name__ == "__main__":
    main()
