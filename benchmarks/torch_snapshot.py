#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory and time of a snapshot as docs/recipes.md takes it, with AdamW on the CPU by the format of its state.

  benchmarks/torch_snapshot.py [--model NAME] [--rounds N] [--output snapshot.json]
  benchmarks/torch_snapshot.py --tables snapshot.json

The class is the page's own. Weights and gradients are bf16. `bytes` are those of the tensors of one snapshot, divided
by the number of parameters. `take`, `restore` and the optimizer's `step` are in nanoseconds a parameter: the fastest
of rounds in which they take turns, in one process with two threads. Two snapshots are kept, so a third one is copied
into the memory of the first.
"""
import argparse
import json
import pathlib
import re
import time

import records
import table
import torch
import torch_state
from torch_tail import MODELS

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROWS = [row for row in torch_state.ROWS if row.startswith("gradscaler") and row.endswith((", split", ", stochastic"))]


def page():
    """What the recipe defines."""
    code = re.search(r"^## Roll back\n.*?```python\n(.*?)^torch.manual_seed", (ROOT / "docs/recipes.md").read_text(),
                     re.M | re.S)[1]
    defined = {}
    exec(code, defined)
    return defined


def size(value):
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return sum(map(size, parts))


def measure(row, model, rounds):
    package, name, options = torch_state.ROWS[row]
    torch.manual_seed(0)
    params = torch.nn.ParameterList(torch.empty(count, dtype=torch.bfloat16).normal_(0.0, 0.02)
                                    for count in MODELS[model])
    if "8bit" in row or "16bit" in row:
        # Of matrices alone the state has codes.
        params = torch.nn.ParameterList(p.detach().view(-1, 32) if p.numel() % 32 == 0 else p for p in params)
    for p in params:
        p.grad = torch.empty_like(p).normal_(0.0, 1e-3)
    optimizer = getattr(torch_state.module_of(package), name)(params.parameters(), lr=torch_state.LR, **options)
    snapshots = page()["Snapshots"](params, optimizer)
    found = {"step": [], "take": [], "restore": []}
    for number in range(rounds + 2):
        for key, act in (("step", optimizer.step), ("take", lambda at=number: snapshots.take(at))):
            begin = time.perf_counter_ns()
            act()
            found[key].append(time.perf_counter_ns() - begin)
    elements = sum(MODELS[model])
    bytes_each = size(snapshots.kept[0][1]) / elements
    for _ in range(3):
        begin = time.perf_counter_ns()
        snapshots.restore()
        found["restore"].append(time.perf_counter_ns() - begin)
    # The first two snapshots take new memory.
    del found["take"][:2]
    return {"bytes": round(bytes_each, 3), **{key: round(min(times) / elements, 3) for key, times in found.items()}}


def tables(results):
    lines = [f"{results['context']['processor']}, {results['context']['model']}, two threads", "",
             "| AdamW | bytes | take, ns | restore, ns | step, ns | take / step |",
             "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for row, run in results["rows"].items():
        lines.append(f"| {row} | {run['bytes']:.2f} | {run['take']:.2f} | {run['restore']:.2f} | {run['step']:.2f} |"
                     f" {run['take'] / run['step']:.1f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gpt2_124m", choices=MODELS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--tables", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.tables:
        print(tables(json.loads(arguments.tables.read_text())))
        return
    torch.set_num_threads(torch_state.THREADS)
    results = {"context": {"processor": table.processor(), "torch": torch.__version__, "model": arguments.model,
                           "date": time.strftime("%Y-%m-%d")},
               "rows": {row: measure(row, arguments.model, arguments.rounds) for row in ROWS}}
    if arguments.output:
        arguments.output.write_text(records.laid_out(results) + "\n")
    print(tables(results))


if __name__ == "__main__":
    main()
