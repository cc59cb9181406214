#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Evaluates the rows of gradscaler_gpu_bench and bench.py against goals G1 to G12 of docs/dev/goals.md, and against the
next ones: H1 and H2, tails over smaller state, H7, small lists, and H8, lists whose chunks fill the device badly.

  goals.py [--tables] FOLDER

Reads FOLDER/raw.jsonl, complete or not, and writes goals.json, with every figure that a goal needs, and
table.md there; with --tables it prints the tables instead. A goal whose rows are missing is "not measured". """
import json
import os
import statistics
import sys

MODELS = ("GPT-2 XL", "Llama 7B, 1 of 8")
HALF = "fp16 grads, 16-bit copy"
COLUMNS = ["case", "us", "p10", "p90", "bytes", "GB/s", "of copy", "torch us", "times torch"]


def wanted():
    """(goal, case, column, limit, whether the limit is a minimum)"""
    for label in ("fp16", "bf16", "fp32"):
        yield "G1", f"check, {label} grads", "of copy", 1.0, True
    yield "G2", "AdamW apply, fp32 grads", "of copy", 0.92, True
    yield "G2", "AdamW apply, fp32 grads", "times torch", 1.0, True
    yield "G3", f"AdamW apply, {HALF}", "of copy", 0.9, True
    for model in MODELS:
        for way in ("eager", "graph"):
            yield "G4", f"tail, {way}: {model}, fp32 grads", "times torch", 1.5, True
            yield "G5", f"tail, {way}: {model}, {HALF}", "times torch", 1.9, True
    yield "G6", "tail, eager: ResNet-50, fp32 grads", "us", 230, False
    yield "G6", "tail, host: ResNet-50, fp32 grads", "us", 15, False
    yield "G7", "tail, eager: 1000 x 1024, fp32 grads", "us", 25, False
    yield "G8", "tail, eager: 10000 x 64, fp32 grads", "us", 60, False
    for label in ("fp16", "bf16", "fp32"):
        yield "G9", f"check, {label} grads, misaligned", "of copy", 0.85, True
    yield "G9", "AdamW apply, fp32 grads, misaligned", "of copy", 0.85 * 0.92, True
    yield "G9", f"AdamW apply, {HALF}, misaligned", "of copy", 0.85 * 0.9, True
    yield "G10", "tail, host: GPT-2 XL, fp32 grads", "us", 10, False
    yield "G10", "tail, graph host: GPT-2 XL, fp32 grads", "us", 5, False
    yield "G11", "skipped step", "us", None, False
    yield "G12", "check, 2^31 elements", "of copy", 1.0, True
    yield "G12", "AdamW apply, 2^31 elements", "of copy", 0.92, True
    for model in MODELS:
        case = f"tail, graph: {model}, {HALF}"
        for goal, bits, ours, torch in (("H1", 16, 1.4, 3.0), ("H2", 8, 1.7, 3.7)):
            yield goal, case, f"gradscaler, {bits}-bit state: times gradscaler", ours, True
            yield goal, case, f"gradscaler, {bits}-bit state: times torch", torch, True
    for small in ("1000 x 1024", "network of 10^4"):
        yield "H7", f"tail, graph: {small}, fp32 grads", "us", 12, False
    for large in ("10 x 16 Mi", "200 x 1 Mi"):
        yield "H8", f"tail, graph: {large}, fp32 grads", "of copy", 1.0, True


def join(lines):
    """{case: row}; rows of one case are merged, later ones win. Those of the comparison, which have a contender and a
    process, become a row's "who": {contender: medians over the processes}. A truncated last line of a killed run is
    dropped."""
    rows, compared = {}, {}
    for line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "who" in row:
            compared.setdefault(row["case"], {}).setdefault(row["who"], []).append(row)
        else:
            rows.setdefault(row["case"], {}).update(row)
    for case, runs in compared.items():
        who = {name: {key: statistics.median(run[key] for run in found) for key in ("us", "p10", "p90")}
               for name, found in runs.items()}
        row = rows.setdefault(case, {"case": case})
        row["who"] = who
        for reference, short in (("torch fused", "torch"), ("gradscaler", "gradscaler")):
            for name, found in who.items() if reference in who else ():
                row[f"{name}: times {short}"] = round(who[reference]["us"] / found["us"], 2)
        if "gradscaler: times torch" in row:
            row["times torch"] = row["gradscaler: times torch"]
    for row in rows.values():
        if "torch us" in row and "us" in row:
            row["times torch"] = round(row["torch us"] / row["us"], 2)
    return rows


def judge(rows):
    result = []
    for goal, case, column, limit, at_least in wanted():
        value = rows.get(case, {}).get(column)
        if limit is None and "check, with an inf" in rows:  # a skipped step, against its check alone
            limit = round(1.05 * rows["check, with an inf"]["us"] + 6, 2)
        verdict = "not measured"
        if value is not None and limit is not None:
            verdict = "met" if (value >= limit if at_least else value <= limit) else "not met"
        result.append({"goal": goal, "case": case, "figure": column, "asked for": ">=" if at_least else "<=",
                       "limit": None if limit is None else round(limit, 3), "measured": value, "verdict": verdict})
    return result


def table(about, judged, rows):
    lines = [f"{key}: {value}  " for key, value in about.items()]
    lines += ["", "| goal | case | asked for | measured | |", "|---|---|---|---|---|"]
    lines += [f"| {g['goal']} | {g['case']} | {g['figure']} {g['asked for']} {g['limit']} | "
              f"{'' if g['measured'] is None else g['measured']} | {g['verdict']} |" for g in judged]
    lines += ["", "| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(str(row.get(column, "")) for column in COLUMNS) + " |" for row in rows.values()]
    lines += ["", "| compared over the same arrays | us | 10 % | 90 % | times torch fused |", "|---|---|---|---|---|"]
    lines += [f"| {case}: {name} | {found['us']} | {found['p10']} | {found['p90']} | "
              f"{row.get(f'{name}: times torch', '')} |"
              for case, row in rows.items() for name, found in row.get("who", {}).items()]
    return "\n".join(lines) + "\n"


def main():
    *options, folder = sys.argv[1:] or [""]
    if not folder or options not in ([], ["--tables"]):
        sys.exit(__doc__)

    def write(name, text):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    with open(os.path.join(folder, "raw.jsonl"), encoding="utf-8") as file:
        rows = join(file)
    about = {}
    if os.path.exists(os.path.join(folder, "device.json")):
        with open(os.path.join(folder, "device.json"), encoding="utf-8") as file:
            about = json.load(file)
    judged = judge(rows)
    if options:
        print(table(about, judged, rows))
        return
    write("goals.json", json.dumps({"about": about, "goals": judged}, indent=1) + "\n")
    write("table.md", table(about, judged, rows))


if __name__ == "__main__":
    main()
