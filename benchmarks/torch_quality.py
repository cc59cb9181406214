#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares AdamW with each format of its state: a small transformer on Python's reference, and frozen moments.

  benchmarks/torch_quality.py [--steps N] [--seeds N] [--row NAME...] [--output quality.json]
  benchmarks/torch_quality.py --tables quality.json

Every run is a byte-level transformer with the same seeds, batches and schedule for all rows; its number is the loss on
the last tenth of the text. Weights and their gradients are bf16 where the row does not say fp32 weights, all between
them is fp32, and only the optimizers differ. Runs are added to an existing --output, which is written after each one,
so that a run that was stopped can go on. `freeze` is the square root of the second moment over the right one (median of
4096 elements): after steps with beta2 0.999, and after as many with gradients a tenth as large. It uses one thread.
"""
import argparse
import json
import math
import pathlib
import statistics
import time
from pydoc_data import topics

import records
import table
import torch
import torch_state

BATCH, LENGTH, WIDTH, LAYERS, HEADS = 2, 64, 256, 3, 4
LR, WARMUP, BETAS, MAX_NORM = 2e-3, 20, (0.9, 0.999), 1.0
#: Package, class and arguments of those of torch_state.py that differ in what they train.
ROWS = {"torch, fp32 weights": torch_state.ROWS["torch fused"], "torch": torch_state.ROWS["torch fused"],
        **{row: torch_state.ROWS[row] for row in torch_state.ROWS
           if row.startswith("gradscaler") and row.endswith(("split", "split24", "stochastic"))},
        "torchao AdamW8bit, stochastic": torch_state.ROWS["torchao AdamW8bit, stochastic"]}


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.first(x)).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(found.transpose(1, 2).reshape(x.shape))
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))


class Model(torch.nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.token, self.place = torch.nn.Embedding(256, width), torch.nn.Embedding(LENGTH, width)
        self.blocks = torch.nn.Sequential(*(Block(width) for _ in range(LAYERS)))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, 256)

    def forward(self, text):
        x = self.token(text[:, :-1]) + self.place.weight
        logits = self.head(self.norm(self.blocks(x))).float()
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def loss(model, text):
    """The mean loss over the bytes of text, computed in fp32 from weights of any dtype."""
    return torch.func.functional_call(model, {name: p.float() for name, p in model.named_parameters()}, text)


def optimizer(row, params, **options):
    package, name, own = ROWS[row]
    return getattr(torch_state.module_of(package), name)(params, **options, **own)


def text():
    return torch.tensor(list("\n".join(topics.topics.values()).encode()))


def train(row, seed, steps):
    """The loss on held-out text after so many steps."""
    torch.manual_seed(seed)
    data = text()
    known, held_out = data[:len(data) * 9 // 10], data[len(data) * 9 // 10:]
    model = Model().to(torch.float32 if row.endswith("fp32 weights") else torch.bfloat16)
    adamw = optimizer(row, model.parameters(), lr=LR, betas=BETAS, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(adamw, lambda step: min(1.0, (step + 1) / WARMUP) * (
        0.55 + 0.45 * math.cos(math.pi * step / steps)))
    batches = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        places = torch.randint(len(known) - LENGTH - 1, (BATCH,), generator=batches)
        adamw.zero_grad()
        loss(model, torch.stack([known[place:place + LENGTH + 1] for place in places])).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        adamw.step()
        schedule.step()
    with torch.no_grad():
        pieces = held_out[:len(held_out) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
        return statistics.fmean(loss(model, part).item() for part in pieces.split(64))


def second_moment(entry):
    """The second moment in an optimizer's state, in fp32."""
    return entry["exp_avg_sq"].dequantize() if hasattr(entry["exp_avg_sq"], "dequantize") else entry["exp_avg_sq"]


def freeze(row, steps=3000):
    torch.manual_seed(0)
    p = torch.nn.Parameter(torch.zeros(64, 64, dtype=torch.float32 if row.endswith("fp32 weights") else torch.bfloat16))
    size = torch.randn(64, 64).mul(2.0).exp().mul(1e-3)
    adamw, found = optimizer(row, [p], lr=1e-9, betas=BETAS, weight_decay=0.0), []
    right = torch.zeros(64, 64, dtype=torch.float64)
    for factor in (1.0, 0.1):
        for _ in range(steps):
            p.grad = torch.randn(64, 64).mul(size).mul(factor).to(p.dtype)
            right.mul_(BETAS[1]).addcmul_(p.grad.double(), p.grad.double(), value=1.0 - BETAS[1])
            adamw.step()
        state = adamw.fp32_state_dict()["state"][0] if ROWS[row][0] == "gradscaler" else adamw.state[p]
        found.append(round(float((second_moment(state).double() / right).sqrt().median()), 3))
    return found


def tables(results):
    context, seeds = results["context"], sorted({seed for runs in results["loss"].values() for seed in runs})
    lines = [f"{context['processor']}, torch {context['torch']}, {context['parameters']} parameters,"
             f" {context['steps']} steps of {BATCH * LENGTH} bytes, {context['bytes']} bytes of text", "",
             "| AdamW | " + " | ".join(map(str, seeds)) + " | mean | frozen? |",
             "| --- |" + " ---: |" * (len(seeds) + 2)]
    for row, runs in results["loss"].items():
        shown = [f"{runs[seed]:.3f}" if seed in runs else "" for seed in seeds]
        ratio = ", ".join(f"{value:.2f}" for value in results["freeze"].get(row, []))
        lines.append(f"| {row} | " + " | ".join([*shown, f"{statistics.fmean(runs.values()):.3f}", ratio]) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--row", action="append", choices=ROWS)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--tables", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.tables:
        print(tables(json.loads(arguments.tables.read_text())))
        return
    torch.set_num_threads(1)
    context = {"processor": table.processor(), "torch": torch.__version__, "steps": arguments.steps,
               "parameters": sum(p.numel() for p in Model().parameters()), "bytes": len(text()),
               "date": time.strftime("%Y-%m-%d")}
    results = records.resumed({"context": context, "loss": {}, "freeze": {}}, arguments.output)

    def keep():
        if arguments.output:
            arguments.output.write_text(records.laid_out(results) + "\n")

    rows = arguments.row or list(ROWS)
    for seed in map(str, range(1, arguments.seeds + 1)):
        for row in rows:
            runs = results["loss"].setdefault(row, {})
            if seed not in runs:
                runs[seed] = round(train(row, int(seed), arguments.steps), 4)
                keep()
    for row in rows:
        if row not in results["freeze"]:
            results["freeze"][row] = freeze(row)
            keep()
    print(tables(results))


if __name__ == "__main__":
    main()
