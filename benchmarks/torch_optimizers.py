#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""AdamW of gradscaler.torch against torch.optim's fused and foreach ones, through PyTorch, fp32 on the CPU.

  benchmarks/torch_optimizers.py [--quick | --verify] [--model NAME...] [--output torch.json]
  benchmarks/torch_optimizers.py --tables torch.json

For every list of parameters, in turn and on the same tensors: `step` is optimizer.step() on gradients that stay where
they are; `new gradients` the same after zero_grad() and new ones, as in training; `tail` is unscaling, clip_grad_norm_,
step and update under a GradScaler, for gradscaler with max_grad_norm= and its own GradScaler. The order
changes from round to round.
Before anything is timed, all are checked to take the same step; --verify does only that. --tables prints the tables of
an --output. Exit status 77: left out, a module is missing.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

try:
    import torch

    import gradscaler as gs
    import gradscaler.torch
except ImportError as error:
    print(f"torch_optimizers: left out, there is no module {error.name}")
    sys.exit(77)

import records  # noqa: E402
import table  # noqa: E402
from torch_tail import MODELS  # noqa: E402

THREADS, SCALE, MAX_NORM = 2, 2.0, 1.0
AIMS = {"1000x1024": 6.0, "10000x64": 12.0, "resnet50": 0.98, "gpt2_124m": 0.98}
TAIL_AIMS = {**AIMS, "resnet50": 1.35, "gpt2_124m": 1.35}
CASES = ("step", "new gradients", "tail")
SIDES = ("gradscaler", "torch fused", "torch foreach")


class Side:
    """One optimizer over the parameters that all share, with a scaler and clipping as its users have them."""

    def __init__(self, name, params):
        self.name, self.params = name, params
        self.ours = name == "gradscaler"
        self.optimizer = (gs.torch.AdamW(params, lr=0.0) if self.ours
                          else torch.optim.AdamW(params, lr=0.0, **{name.split()[1]: True}))
        kind = gs.torch.GradScaler if self.ours else torch.amp.GradScaler
        self.scaler = kind("cpu", init_scale=SCALE, growth_interval=1 << 30)
        self.scaler.scale(torch.ones(1))

    def step(self):
        self.optimizer.step()

    def tail(self):
        if self.ours:
            self.optimizer.max_grad_norm = MAX_NORM
        else:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.params, MAX_NORM)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.ours:
            self.optimizer.max_grad_norm = None

    def set_lr(self, lr):
        for group in self.optimizer.param_groups:
            group["lr"] = lr


def set_grads(params, values):
    for p, value in zip(params, values, strict=True):
        p.grad = value.clone()


def verify(sides, params, values):
    """The same parameters after a step, to a few ulp of it, from each; the clipped ones too."""
    start = [p.detach().clone() for p in params]
    for act in (Side.step, Side.tail):
        found = []
        for side in sides:
            with torch.no_grad():
                for p, value in zip(params, start, strict=True):
                    p.copy_(value)
            set_grads(params, [value * SCALE for value in values] if act is Side.tail else values)
            side.set_lr(1e-2)
            act(side)
            side.set_lr(0.0)
            found.append([p.detach().clone() for p in params])
        for side, other in zip(sides[1:], found[1:], strict=True):
            for a, b in zip(found[0], other, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, msg=lambda text, side=side: side.name + text)
    with torch.no_grad():
        for p, value in zip(params, start, strict=True):
            p.copy_(value)


def measure(name, rounds, seconds):
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(count) * 0.02) for count in MODELS[name]]
    values = [torch.randn(count) * 1e-3 for count in MODELS[name]]
    sides = [Side(which, params) for which in SIDES]
    verify(sides, params, values)
    if not rounds:
        return None
    found = {case: {side.name: [] for side in sides} for case in CASES}
    end = time.perf_counter() + seconds
    for round_number in range(rounds):
        for case in CASES:
            if case != "new gradients":
                set_grads(params, values)
            for side in sides[round_number % 3:] + sides[:round_number % 3]:
                if case == "new gradients":
                    side.optimizer.zero_grad()
                    set_grads(params, values)
                act = side.tail if case == "tail" else side.step
                if case == "step":
                    act()  # Once unmeasured, which finds the gradients where they are now.
                begin = time.perf_counter()
                act()
                found[case][side.name].append(records.rounded((time.perf_counter() - begin) * 1e3))
        if time.perf_counter() > end and round_number >= 2:
            break
    return found


def context():
    return {"processor": table.processor(), "processors": os.cpu_count(), "torch": torch.__version__,
            "gradscaler": gs.build_info(), "threads": THREADS, "cpu_code": torch.backends.cpu.get_cpu_capability(),
            "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY"),
            "load average at the start": round(os.getloadavg()[0], 1), "date": time.strftime("%Y-%m-%d"), "unit": "ms"}


def tables(results):
    found = results["context"]
    lines = ["# AdamW through PyTorch", "", "Made by `scripts/bench --torch`, which"
             " [benchmarks/README.md](../../README.md) describes; all times are in the JSON file next to this one.", "",
             f"- {found['processor']}, {found['threads']} threads, load average at the start"
             f" {found['load average at the start']}, {found['date']}",
             f"- PyTorch {found['torch']}, its CPU code {found['cpu_code']}, OMP_WAIT_POLICY"
             f" {found.get('OMP_WAIT_POLICY') or 'not set'}",
             f"- {found['gradscaler']}", "",
             "Milliseconds: the median of the rounds, the fastest in parentheses;"
             " and how many times as fast `gradscaler.torch.AdamW` is, by medians.", "",
             "| parameters | what | gradscaler | fused | foreach | fused / ours | foreach / ours | aim |",
             "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"]
    for model, cases in results["models"].items():
        for case, times in cases.items():
            middle = {side: statistics.median(times[side]) for side in SIDES}
            shown = [f"{middle[side]:.2f} ({min(times[side]):.2f})" for side in SIDES]
            ours, fused = middle["gradscaler"], middle["torch fused"]
            shown += [f"{middle[side] / ours:.2f}" for side in SIDES[1:]]
            aim = (TAIL_AIMS if case == "tail" else AIMS)[model]
            met = "met" if min(fused, middle["torch foreach"]) / ours >= aim else "missed"
            lines.append(f"| {model} | {case} | " + " | ".join(shown) + f" | >= {aim:g}: {met} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--tables", type=pathlib.Path, metavar="torch.json")
    arguments = parser.parse_args()
    if arguments.tables:
        print(tables(json.loads(arguments.tables.read_text())))
        return
    torch.set_num_threads(THREADS)
    results = {"context": context(), "models": {}}
    rounds, seconds = (0, 0) if arguments.verify else (3, 1) if arguments.quick else (15, 30)
    for model in arguments.model or MODELS:
        found = measure(model, rounds, seconds)
        if found:
            results["models"][model] = found
    if arguments.output and not arguments.verify:
        arguments.output.write_text(records.laid_out(results) + "\n")
    print("the same steps" if arguments.verify else tables(results))


if __name__ == "__main__":
    main()
