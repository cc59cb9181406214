#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on the digits with torch.amp.GradScaler, and writes every step for torch_test.cpp to repeat.

reference.py <digits.csv.gz> <output>: the output is fp32 numbers one after the other. First the sizes: steps, rows of
a batch, pixels, width, classes, then 1 if PyTorch's code for this processor fuses multiply-adds; then the initial
weights, and for each step the pixels and labels of its batch. Then twice, for SGD and for AdamW: for each step the
loss, whether it was skipped, the scale after it and all weights.
"""

import gzip
import sys

import numpy as np
import torch

STEPS, BATCH, PIXELS, WIDTH, CLASSES = 60, 32, 64, 32, 10
SCALER = {"init_scale": 2.0**24, "growth_interval": 6}

# MKL's square root is not always rounded to nearest; the library's is. See docs/dev/conformance.md.
_root = torch.Tensor.sqrt
torch.Tensor.sqrt = lambda x: _root(x.double()).to(x.dtype)


def make_sgd(weights):
    return torch.optim.SGD(weights, lr=0.05, momentum=0.9, dampening=0.1, weight_decay=1e-3, foreach=False)


def make_adamw(weights):
    return torch.optim.AdamW(weights, lr=3e-3, weight_decay=0.1, foreach=False, fused=False)


def train(make_optimizer, initial, batches, write):
    weights = [torch.from_numpy(array.copy()).requires_grad_() for array in initial]
    optimizer = make_optimizer(weights)
    scaler = torch.amp.GradScaler("cpu", **SCALER)
    for pixels, labels in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            hidden = torch.relu(torch.nn.functional.linear(torch.from_numpy(pixels), weights[0], weights[1]))
            logits = torch.nn.functional.linear(hidden, weights[2], weights[3])
            loss = torch.nn.functional.cross_entropy(logits.float(), torch.from_numpy(labels))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        before = scaler.get_scale()
        scaler.update()
        write([loss.item(), scaler.get_scale() < before, scaler.get_scale()])
        for weight in weights:
            write(weight.detach().numpy())


def main():
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    with gzip.open(sys.argv[1]) as file:
        rows = np.loadtxt(file, delimiter=",", dtype=np.float32)
    initial = [(random.standard_normal(size) * spread).astype(np.float32) for size, spread in (
        ((WIDTH, PIXELS), 0.15), ((WIDTH,), 0.0), ((CLASSES, WIDTH), 0.2), ((CLASSES,), 0.0))]
    chosen = random.integers(0, len(rows), (STEPS, BATCH))
    batches = [(rows[order, :PIXELS] / 16, rows[order, PIXELS].astype(np.int64)) for order in chosen]
    fuses = torch.backends.cpu.get_cpu_capability() not in ("DEFAULT", "NO AVX")
    with open(sys.argv[2], "wb") as file:
        def write(numbers):
            file.write(np.asarray(numbers, dtype=np.float32).tobytes())
        write([STEPS, BATCH, PIXELS, WIDTH, CLASSES, fuses])
        for array in initial:
            write(array)
        for pixels, labels in batches:
            write(pixels)
            write(labels)
        train(make_sgd, initial, batches, write)
        train(make_adamw, initial, batches, write)


main()
