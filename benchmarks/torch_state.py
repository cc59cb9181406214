#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory and time of AdamW through PyTorch on the CPU by the format of its state, beside torchao's and bitsandbytes'.

  benchmarks/torch_state.py [--model NAME...] [--row NAME...] [--rounds N] [--output state.json]
  benchmarks/torch_state.py --tables state.json

Each measurement is a process with bf16 weights and gradients, fp32 ones where the row says so; the processes of all
rows take turns, --rounds times. `memory` is by how much the resident memory of the process (VmRSS) has grown after the
first step, in bytes a parameter: weights, gradients and state. `step` is optimizer.step(), `tail` unscaling, clipping
and step under a GradScaler, for gradscaler its own with max_grad_norm=; both in nanoseconds a parameter, the median of
the steps in a process. Rows whose package is missing are left out with one line.
"""
import argparse
import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import records
import table
from torch_tail import MODELS

THREADS, LR = 2, 1e-3
OURS = [("fp32", None), ("fp32", "split"), ("16bit", "split"), ("8bit", "split"), ("8bit", "split24"),
        ("8bit", "stochastic")]
#: Name: package, class, and its arguments. Of gradscaler, fp32 state without masters is torch's own layout.
ROWS = {"torch fused, fp32 weights": ("torch", "AdamW", {"fused": True}),
        "torch fused": ("torch", "AdamW", {"fused": True}),
        **{f"gradscaler {state}" + (f", {master}" if master else ""):
           ("gradscaler", "AdamW", {"state": state, "master": master}) for state, master in OURS},
        "gradscaler fp32, master_weights": ("gradscaler", "AdamW", {"master_weights": True}),
        "torchao AdamW8bit": ("torchao", "AdamW8bit", {}),
        "torchao AdamWFp8": ("torchao", "AdamWFp8", {}),
        "torchao AdamW8bit, stochastic": ("torchao", "AdamW8bit", {"bf16_stochastic_round": True}),
        "bitsandbytes AdamW8bit": ("bitsandbytes", "AdamW8bit", {})}


def resident():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError("the system does not tell the resident memory")


def timed(act, seconds):
    """Nanoseconds of calls for so long, at least five."""
    found, end = [], time.perf_counter() + seconds
    while len(found) < 5 or time.perf_counter() < end:
        begin = time.perf_counter_ns()
        act()
        found.append(time.perf_counter_ns() - begin)
    return found


def module_of(package):
    """The module of a package that has its optimizers."""
    return importlib.import_module(f"{package}.{'torch' if package == 'gradscaler' else 'optim'}")


def measure(row, model, seconds):
    """One process's numbers."""
    import torch

    package, name, options = ROWS[row]
    torch.set_num_threads(THREADS)
    module = module_of(package)
    dtype = torch.float32 if row.endswith("fp32 weights") else torch.bfloat16
    # What the libraries keep for themselves, and not by the parameter, is there before it is counted.
    warm = torch.nn.Parameter(torch.ones(8192, dtype=dtype))
    warm.grad = torch.ones_like(warm)
    getattr(module, name)([warm], lr=LR, **options).step()
    before = resident()
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.empty(count, dtype=dtype).normal_(0.0, 0.02)) for count in MODELS[model]]
    for p in params:
        p.grad = torch.empty_like(p).normal_(0.0, 1e-3)
    optimizer = getattr(module, name)(params, lr=LR, **options)
    optimizer.step()
    elements = sum(MODELS[model])
    memory = (resident() - before) / elements
    found = {"memory": memory, "step": statistics.median(timed(optimizer.step, seconds)) / elements}
    kind = module.GradScaler if package == "gradscaler" else torch.amp.GradScaler
    scaler = kind("cpu", init_scale=1.0, growth_interval=1 << 30)
    scaler.scale(torch.ones(1))
    if package == "gradscaler":
        optimizer.max_grad_norm = 1.0

    def tail():
        if package != "gradscaler":
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(params, 1.0)
        scaler.step(optimizer)
        scaler.update()

    return {**found, "tail": statistics.median(timed(tail, seconds)) / elements}


def run(row, model, seconds):
    """The numbers of a process, or why there are none."""
    done = subprocess.run([sys.executable, "-B", __file__, "--one", row, "--model", model, "--seconds", str(seconds)],
                          text=True, capture_output=True)
    if done.returncode == 0:
        return {key: round(value, 4) for key, value in json.loads(done.stdout.splitlines()[-1]).items()}
    return {"left out": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}


def versions():
    from importlib import metadata
    found = {}
    for package in ("torch", "torchao", "bitsandbytes"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def tables(results):
    context = results["context"]
    lines = [f"{context['processor']}, {context['threads']} threads, load average {context['load average']},"
             f" {context['date']}, " + ", ".join(f"{name} {version}" for name, version in context["versions"].items()),
             "", "| parameters | AdamW | bytes a parameter | step, ns | tail, ns |",
             "| --- | --- | ---: | ---: | ---: |"]
    for model, rows in results["models"].items():
        for row, runs in rows.items():
            known = [each for each in runs if "left out" not in each]
            shown = [f"{statistics.median(each[key] for each in known):.2f}" for key in ("memory", "step", "tail")
                     ] if known else [f"left out: {runs[0]['left out']}", "", ""]
            lines.append(f"| {model} | {row} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--row", action="append", choices=ROWS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--tables", type=pathlib.Path)
    parser.add_argument("--one", choices=ROWS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.tables:
        print(tables(json.loads(arguments.tables.read_text())))
        return
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.model[0], arguments.seconds)))
        return
    models = arguments.model or ["1000x1024", "gpt2_124m"]
    results = {"context": {"processor": table.processor(), "threads": THREADS, "versions": versions(),
                           "load average": round(os.getloadavg()[0], 1), "date": time.strftime("%Y-%m-%d")},
               "models": {model: {row: [] for row in arguments.row or ROWS} for model in models}}
    for model in models:
        for _ in range(arguments.rounds):
            for row, found in results["models"][model].items():
                found.append(run(row, model, arguments.seconds))
    if arguments.output:
        arguments.output.write_text(records.laid_out(results) + "\n")
    print(tables(results))


if __name__ == "__main__":
    main()
