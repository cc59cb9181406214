#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the goals of all committed results into docs/dev/goals.md.

  benchmarks/compare.py [--check]

Reads benchmarks/results/*/cpu.json and the H200's rows, and replaces the text between the markers. A cell of the
CPU's table has the least and the greatest of a goal's cases, the number of cases that miss its last aim, and the number
of these that a measured limit explains. --check exits with 1 if the page is out of date.
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


def cell(goal):
    if goal is None:
        return "not measured"
    values = [value for _, value in goal.measured]
    misses = [(what, value) for what, value in goal.measured if value < goal.aim]
    causes = [goal.cause_of_miss(what, value) for what, value in misses]
    span = f"{min(values):.2f}" if len(values) == 1 else f"{min(values):.2f} to {max(values):.2f}"
    if misses:
        span += f"; {len(misses)} of {len(values)} missed"
    for cause, word in ((table.TRAFFIC, "traffic"), (table.ARITHMETIC, "arithmetic"), (table.PER_TENSOR, "tensors")):
        if cause in causes:
            span += f", {causes.count(cause)} by {word}"
    return span


def side_by_side():
    columns, aims = {}, {}
    for path in sorted((ROOT / "benchmarks/results").glob("*/cpu.json")):
        results = table.Results(records.load(path), None)
        found = {goal.text: goal for goal in table.goals(results)}
        columns[f"[{results.context['processor']}](../../benchmarks/results/{path.parent.name}), "
                f"{results.context['date'][:10]}"] = found
        aims.update({goal.text: goal.aim for goal in found.values()})
    rows = [[text, f"{aim:g}"] + [cell(found.get(text)) for found in columns.values()] for text, aim in aims.items()]
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
    arguments = parser.parse_args()
    page = PAGE.read_text()
    fresh = page
    for name, text in (("cpu", side_by_side()), ("gpu", on_gpu())):
        fresh = re.sub(PART.format(name), lambda _, text=text: text, fresh, flags=re.S)
    if arguments.check:
        sys.exit("docs/dev/goals.md: run benchmarks/compare.py" if fresh != page else 0)
    PAGE.write_text(fresh)


if __name__ == "__main__":
    main()
